#include "app/base/training_statistics.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "app/base/catalog.h"
#include "app/base/console.h"
#include "app/base/progress_line.h"
#include "engine/config/normalization.h"
#include "engine/data/data_sets.h"
#include "engine/data/splits.h"
#include "engine/processes/stop.h"
#include "kernels/base/heartbeat.h"
#include "kernels/base/json_text.h"
#include "kernels/base/stop_request.h"
#include "kernels/base/text.h"
#include "kernels/devices.h"

namespace dpt {
namespace {

/// Throws for samples that cannot be used, or warns about those that are left out.
void check_usable(const TrainSpec& spec, const SurveyedSplit& train) {
  const std::int64_t left_out = train.split.size() - train.statistics.samples;
  if (left_out == 0) return;
  const auto unreadable = static_cast<std::int64_t>(train.unreadable.size());
  const std::string first = unreadable > 0 ? "the first: " + train.unreadable[0].second
                                           : std::string("values that are NaN or infinite");
  if (spec.data.on_bad_sample == OnBadSample::skip && left_out == unreadable &&
      train.statistics.samples > 0) {
    return say(fmt::format("warning: mean and std: {} of {} training samples {} left out ({})",
                           unreadable, train.split.size(), unreadable == 1 ? "was" : "were",
                           first));
  }
  fail(ErrorKind::data, "{}: {} of {} training samples cannot be used ({}): see dpt data check",
       spec.file, left_out, train.split.size(), first);
}

/// Returns the number rounded to six digits, or to more digits if the error would exceed 1e-5 of
/// `unit`.
double rounded_number(double value, double unit) {
  const double ratio = std::abs(value) / unit;
  const int more =
      std::isfinite(ratio) && ratio > 1 ? static_cast<int>(std::floor(std::log10(ratio))) : 0;
  const std::string text = fmt::format("{:.{}g}", value, std::min(6 + more, 17));
  double rounded = 0;
  std::from_chars(text.data(), text.data() + text.size(), rounded);
  return rounded;
}

void set_numbers(TrainSpec& spec, NormalizeSpec numbers) {
  spec.data.normalize.mean = std::move(numbers.mean);
  spec.data.normalize.std = std::move(numbers.std);
  apply_normalization(catalog().transforms, spec.data);
}

}  // namespace

std::optional<ChannelStatistics> training_statistics(const TrainSpec& spec, const DataSets& sets,
                                                     int workers) {
  const auto seed = static_cast<std::uint64_t>(spec.seed);
  std::vector<SurveyedSplit> splits = {
      {"train", make_splits(sets, spec.data.val_split, seed).train, {}, {}, {}}};
  ProgressLine progress;
  SurveyOptions survey;
  survey.workers = workers;
  survey.records = false;
  survey.wants_stop = [] { return requested_stop() != StopReason::none; };
  survey.on_progress = [&](std::int64_t done, std::int64_t total) {
    beat("measuring data.normalize");
    progress.update("read", done, total, "samples");
  };
  if (!survey_samples(splits, survey)) return std::nullopt;
  check_usable(spec, splits[0]);
  return splits[0].statistics;
}

NormalizeSpec normalize_spec(const ChannelStatistics& statistics) {
  NormalizeSpec normalize;
  for (std::size_t i = 0; i < statistics.mean.size(); ++i) {
    const double stddev = statistics.stddev[i];
    normalize.mean.push_back(rounded_number(statistics.mean[i], stddev == 0 ? 1 : stddev));
    normalize.std.push_back(stddev == 0 ? 1 : rounded_number(stddev, stddev));
  }
  return normalize;
}

std::string text_of(const NormalizeSpec& normalize) {
  return fmt::format("mean: [{}], std: [{}]", fmt::join(normalize.mean, ", "),
                     fmt::join(normalize.std, ", "));
}

void measure_normalization(TrainSpec& spec, const DataSets& sets, ProcessGroup* processes) {
  if (!spec.data.normalize.is_pending()) return;
  NormalizeSpec numbers;
  if (!processes || processes->is_first()) {
    const auto statistics = training_statistics(spec, sets, cpu_info().logical_allowed);
    if (!statistics) throw StopRequested();
    numbers = normalize_spec(*statistics);
    say(fmt::format("data.normalize: auto: {} ({})", text_of(numbers),
                    counted(statistics->samples, "training sample")));
  }
  if (processes) {
    const char* what = "numbers of data.normalize";
    const nlohmann::json own = {{"mean", numbers.mean}, {"std", numbers.std}};
    const std::string said = processes->share(what, json_text(own));
    read_said(0, what, [&] {
      const nlohmann::json of_first = nlohmann::json::parse(said);
      numbers.mean = of_first.at("mean").get<std::vector<double>>();
      numbers.std = of_first.at("std").get<std::vector<double>>();
    });
  }
  set_numbers(spec, std::move(numbers));
}

void skip_normalization(TrainSpec& spec) {
  if (!spec.data.normalize.is_pending()) return;
  const auto channels = static_cast<std::size_t>(spec.model.input[0]);
  NormalizeSpec numbers;
  numbers.mean.assign(channels, 0.0);
  numbers.std.assign(channels, 1.0);
  set_numbers(spec, std::move(numbers));
}

}  // namespace dpt
