// dpt bench CONFIG --data: measures how many training samples per second the host reads, decodes
// and transforms, and the time of each stage. Uses no device.
#include "app/bench/bench_data.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "app/base/catalog.h"
#include "app/base/command_support.h"
#include "app/base/console.h"
#include "app/base/training_statistics.h"
#include "engine/config/read_spec.h"
#include "engine/data/loader.h"
#include "engine/job/job.h"
#include "engine/training/run_report.h"
#include "kernels/base/json_text.h"
#include "kernels/base/stage_clock.h"
#include "kernels/base/text.h"

namespace dpt {
namespace {

struct DataRound {
  double seconds = 0;
  std::int64_t samples = 0;
};

/// Takes batches from a loader, continuing from epoch to epoch.
class BatchReader {
 public:
  explicit BatchReader(const Job& job) : job_(job), loader_(job.data.splits.train, options(job)) {}

  DataRound read(std::int64_t batches) {
    DataRound round;
    const auto begin = std::chrono::steady_clock::now();
    for (std::int64_t i = 0; i < batches; ++i) {
      if (left_ == 0) start_epoch();
      --left_;
      round.samples += static_cast<std::int64_t>(loader_.next().ids.size());
    }
    const auto time = std::chrono::steady_clock::now() - begin;
    round.seconds = std::chrono::duration<double>(time).count();
    return round;
  }

 private:
  static Loader::Options options(const Job& job) {
    Loader::Options made = loader_options(job);
    made.sampling = sampling_of(job.spec);
    return made;
  }

  void start_epoch() {
    std::vector<Range> ranges;
    for (std::int64_t i = 0; i < job_.data.steps_per_epoch; ++i)
      ranges.push_back(job_.batch_range(i));
    left_ = job_.data.steps_per_epoch;
    loader_.start(epoch_++, std::move(ranges));
  }

  const Job& job_;
  Loader loader_;
  std::int64_t epoch_ = 0, left_ = 0;
};

/// Reads the config, and sets data.cache_mib=0 unless an override sets it: a cache of decoded
/// samples would leave nothing to measure from the second epoch on.
TrainSpec load_without_memory_cache(const BenchOptions& options) {
  std::vector<std::string> overrides = with_devices(options.overrides, options.devices);
  TrainSpec spec = load_spec(catalog(), options.config, overrides);
  const std::vector<Field>& fields = spec.data.dataset.table->fields;
  const bool has_cache = std::any_of(fields.begin(), fields.end(), [](const Field& field) {
    return field.name == std::string("cache_mib");
  });
  const bool is_asked_for =
      std::any_of(overrides.begin(), overrides.end(),
                  [](const std::string& each) { return each.starts_with("data.cache_mib="); });
  if (!has_cache || is_asked_for) return spec;
  overrides.push_back("data.cache_mib=0");
  say("note: measured with data.cache_mib=0: training keeps decoded images in memory after the "
      "first epoch if they fit");
  return load_spec(catalog(), options.config, overrides);
}

}  // namespace

int run_bench_data(const BenchOptions& options) {
  TrainSpec spec = load_without_memory_cache(options);
  skip_normalization(spec);
  const Job job = load_job(std::move(spec));
  if (job.data.splits.train.source->resident()) {
    fail(ErrorKind::usage,
         "bench --data: expected a data set whose samples are decoded or transformed on the host, "
         "but {} keeps its samples in memory in the form that the devices use, so there is nothing "
         "to time",
         job.spec.data.dataset.type);
  }
  BatchReader reader(job);
  reader.read(job.spec.data.prefetch + 1);  // starts the decoders and touches the buffers
  std::vector<double> rates;
  std::int64_t samples = 0;
  measure_data_stages(true);
  for (std::int64_t i = 0; i < options.rounds; ++i) {
    const DataRound round = reader.read(options.steps);
    rates.push_back(static_cast<double>(round.samples) / round.seconds);
    samples += round.samples;
  }
  const StageSeconds stages = data_stage_seconds();
  measure_data_stages(false);
  std::sort(rates.begin(), rates.end());
  const double median = rates[rates.size() / 2];
  // Decoders read ahead, but equally far at the beginning and at the end of a round.
  const auto per_sample = [&](double seconds) {
    return seconds * 1e6 / static_cast<double>(samples);
  };
  const int threads = job.placement.decoders->threads();
  if (options.json) {
    nlohmann::ordered_json out = {{"images_per_s", median},
                                  {"min", rates.front()},
                                  {"max", rates.back()},
                                  {"rounds", rates.size()},
                                  {"samples", samples},
                                  {"threads", threads},
                                  {"us_per_image", nlohmann::ordered_json::object()}};
    for (std::size_t i = 0; i < stages.size(); ++i) {
      out["us_per_image"][kDataStageNames[i]] = per_sample(stages[i]);
    }
    fmt::print("{}\n", json_text(out));
    return 0;
  }
  fmt::print("{:.0f} {}/s (median of {} of {} batch{}; {:.0f} to {:.0f}), {}\n", median,
             noun_of_samples(job), counted(rates.size(), "round"), options.steps,
             options.steps == 1 ? "" : "es", rates.front(), rates.back(),
             counted(threads, "decoder thread"));
  double sum = 0;
  for (const double each : stages) sum += each;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    fmt::print("  {:<17}{:8.1f} us per image, {:3.0f} %\n", kDataStageNames[i],
               per_sample(stages[i]), sum > 0 ? 100 * stages[i] / sum : 0);
  }
  return 0;
}

}  // namespace dpt
