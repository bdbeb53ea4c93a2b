// dpt predict RUN|CKPT IMAGE...: what a checkpoint says of pictures that have no labels.
#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <span>

#include "app/catalog.h"
#include "app/checkpoint_choice.h"
#include "app/command_support.h"
#include "app/commands.h"
#include "app/console.h"
#include "app/predictions.h"
#include "app/world_run.h"
#include "datasets/picture_files.h"
#include "engine/checkpoints/checkpoint.h"
#include "engine/schedules/schedule.h"
#include "engine/spec/read_spec.h"
#include "engine/training/process_devices.h"
#include "engine/training/run_ranks.h"
#include "engine/training/trainer.h"
#include "kernels/json_text.h"

namespace dpt {
namespace {

constexpr CheckpointUse kToPredict{"predict", "use", "used"};

/// Pictures that are evaluated at once: their outputs are in memory until they are written. It
/// decides which pictures share a micro-batch, so it does not depend on the devices.
constexpr std::int64_t kChunk = 8192;

Variant with_defaults(const ObjectTable* table) {
  return {table->name, {}, table, table->make()};
}

/// The config without what only training needs: it may depend on data that are not here.
TrainSpec without_training(TrainSpec spec) {
  spec.data.val_split = {};
  spec.data.cache.clear();
  spec.data.transforms.train = spec.data.transforms.eval;
  if (spec.data.on_bad_sample == OnBadSample::skip) spec.data.on_bad_sample = OnBadSample::stop;
  // Outputs do not depend on its options, such as the weights of classes.
  spec.loss = with_defaults(spec.loss.table);
  spec.metrics.clear();
  for (const ObjectTable* table : schedule_table().alternatives) {
    if (table->name == "constant") spec.lr_schedule = with_defaults(table);
  }
  spec.warmup = {};
  return spec;
}

/// What targets the outputs are of. Checkpoints of before 1.6 do not say, and the data need not be
/// here: where it may have others than class labels, an elementwise loss is then taken to be of one
/// target for each output.
TargetShape targets_of(const TrainSpec& spec, std::optional<TargetKind> stored,
                       std::int64_t outputs) {
  if (stored == TargetKind::class_index) return {};
  if (stored) return {*stored, outputs, false};
  if (spec.loss.type == "cross_entropy" || !dataset_kind(spec.data.dataset).any_targets) return {};
  return {spec.loss.type == "bce_with_logits" ? TargetKind::multi_hot : TargetKind::values, outputs,
          false};
}

/// Writes a line for each picture.
class PredictionLines {
 public:
  PredictionLines(const PredictOptions& options, const Job& job, const DataSource& pictures)
      : pictures_(pictures),
        names_(pictures.classes()),
        output_(name_of_outputs(job.spec.loss.type)),
        width_(static_cast<std::size_t>(job.plan.classes)),
        top_(static_cast<std::size_t>(options.top)),
        labelled_(has_labels(job.loss.targets.kind)),
        json_(options.format == "jsonl") {}

  /// The first line; empty where there is none.
  std::string first() const {
    if (json_) return {};
    std::string text = "path";
    for (std::size_t k = 1; labelled_ && k <= top_; ++k) {
      const std::string number = k > 1 ? fmt::format("_{}", k) : std::string();
      text += fmt::format(",prediction{0},prediction_name{0},{1}{0}", number, output_);
    }
    for (std::size_t c = 0; !labelled_ && c < width_; ++c) {
      text += "," + csv_field("prediction_" + name_of(names_, c));
    }
    return text + "\n";
  }

  /// Of picture `index`, the sample at `position` of `samples`; `problem`: why it could not be
  /// read.
  std::string line(std::int64_t index, const SampleResults& samples, std::size_t position,
                   const std::string* problem) const {
    const std::string path = pictures_.describe(index);
    const std::span<const float> outputs =
        std::span(samples.outputs).subspan(position * width_, width_);
    std::vector<std::size_t> classes;
    if (labelled_ && !problem) {
      classes =
          largest_outputs(outputs, static_cast<std::size_t>(samples.prediction[position]), top_);
    }
    return json_ ? json_line(path, outputs, classes, problem)
                 : csv_line(path, outputs, classes, problem);
  }

 private:
  std::string csv_line(const std::string& path, std::span<const float> outputs,
                       const std::vector<std::size_t>& classes, const std::string* problem) const {
    std::string text = csv_field(path);
    if (problem) return text + std::string(labelled_ ? 3 * top_ : width_, ',') + "\n";
    for (const std::size_t c : classes) {
      text += fmt::format(",{},{},{:.9g}", c, csv_field(name_of(names_, c)), outputs[c]);
    }
    for (std::size_t c = 0; !labelled_ && c < width_; ++c) {
      text += fmt::format(",{:.9g}", outputs[c]);
    }
    return text + "\n";
  }

  std::string json_line(const std::string& path, std::span<const float> outputs,
                        const std::vector<std::size_t>& classes, const std::string* problem) const {
    Json line = {{"path", path}};
    const auto add = [&](Json& to, std::size_t c) {
      to["prediction"] = c;
      to["prediction_name"] = name_of(names_, c);
      to[output_] = outputs[c];
    };
    if (problem) {
      line["error"] = *problem;
      return json_text(line) + "\n";
    }
    if (labelled_) add(line, classes[0]);
    if (labelled_ && top_ > 1) {
      Json& top = line["top"] = Json::array();
      for (const std::size_t c : classes) {
        top.push_back(Json::object());
        add(top.back(), c);
      }
    }
    for (std::size_t c = 0; !labelled_ && c < width_; ++c) {
      line["prediction_" + name_of(names_, c)] = outputs[c];
    }
    return json_text(line) + "\n";
  }

  const DataSource& pictures_;
  const std::vector<std::string>& names_;
  std::string output_;
  std::size_t width_, top_;
  bool labelled_, json_;
};

/// What is wrong with pictures before `end`, by index: each process knows those that it decoded.
/// Collective; the same on every rank.
std::map<std::int64_t, std::string> gather_problems(Communicator& communicator, const Job& job,
                                                    UnreadablePictures& unreadable,
                                                    std::int64_t end) {
  Json own = Json::array();
  if (communicator.rank() == job.first_rank()) {
    for (const auto& [index, problem] : unreadable.take_below(end)) own.push_back({index, problem});
  }
  std::string text = own.empty() ? std::string() : json_text(own);
  const auto bytes = static_cast<std::int64_t>(text.size());
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(communicator.size()));
  communicator.all_gather(std::as_bytes(std::span(&bytes, 1)),
                          std::as_writable_bytes(std::span(sizes)));
  const auto most = static_cast<std::size_t>(*std::max_element(sizes.begin(), sizes.end()));
  std::map<std::int64_t, std::string> problems;
  if (most == 0) return problems;
  text.resize(most, ' ');
  std::string all(most * sizes.size(), ' ');
  communicator.all_gather(std::as_bytes(std::span(text)), std::as_writable_bytes(std::span(all)));
  for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
    if (sizes[rank] == 0) continue;
    for (const Json& each : Json::parse(all.substr(rank * most, most))) {
      problems.emplace(each[0].get<std::int64_t>(), each[1].get<std::string>());
    }
  }
  return problems;
}

int predict_in_world(const PredictOptions& options, ProcessGroup* processes) {
  // The checkpoint is rank 0's to read; the pictures are each process' own.
  const bool reads = !processes || processes->is_first();
  const std::string path =
      reads ? find_checkpoint(options.target, kToPredict) : "the checkpoint of rank 0";
  CheckpointHeader header;
  if (reads) header = read_checkpoint_header(path);
  if (processes) share_header(*processes, header);
  // As dpt eval: on any devices, whatever the run's were.
  const TrainSpec spec = without_training(
      load_stored_spec(catalog(), header.config, path,
                       with_devices({"device_weights=auto", "train.shards=0"}, options.devices)));
  if (processes) processes->introduce(devices_of_process(spec.devices, processes->world()));
  Plan plan = make_plan(spec);
  const TargetShape targets = targets_of(spec, header.targets, plan.classes);
  if (options.top > plan.classes) {
    fail(ErrorKind::usage, "--top: expected 1 to {} (the model's classes), found {}", plan.classes,
         options.top);
  }
  if (options.top > 1 && !has_labels(targets.kind)) {
    fail(ErrorKind::usage,
         "--top {}: the model's outputs are not classes to choose from (loss {}), all are printed: "
         "leave --top out",
         options.top, spec.loss.type);
  }
  if (reads && dataset_kind(spec.data.dataset).any_type) {
    say(fmt::format(
        "warning: the run was trained on data of the kind {}: if that were arrays, mind "
        "that pictures are resized to the model's input and scaled to 0..1 before "
        "data.transforms.eval, as arrays of bytes are",
        spec.data.dataset.type));
  }
  const auto unreadable = std::make_shared<UnreadablePictures>();
  const auto pictures =
      open_picture_files({list_pictures(options.pictures), header.classes, targets},
                         data_requirements(spec, plan), unreadable);
  Job job = make_job(spec, std::move(plan), {pictures, nullptr}, {}, processes);
  job.keeps_outputs = true;
  compare_and_connect(job, {});
  const StartingPoint weights = share_start(job, [&] {
    const Checkpoint checkpoint = load_checkpoint(path, job.plan);
    StartingPoint chosen;
    chosen.params = *choose_weights(checkpoint, options.use, job.spec, path).params;
    return chosen;
  });

  const PredictionLines lines(options, job, *pictures);
  const std::int64_t n = pictures->size();
  std::int64_t bad = 0;
  std::string kept = lines.first();
  const auto write = [&](const Split& chunk, const SampleResults& samples,
                         const std::map<std::int64_t, std::string>& problems) {
    for (std::size_t i = 0; i < chunk.indices.size(); ++i) {
      const auto problem = problems.find(chunk.indices[i]);
      kept += lines.line(chunk.indices[i], samples, i,
                         problem == problems.end() ? nullptr : &problem->second);
    }
    for (const auto& [index, problem] : problems) say(problem);
    bad += static_cast<std::int64_t>(problems.size());
    if (!options.out.empty()) return;
    fmt::print("{}", kept);
    kept.clear();
  };
  run_ranks(job, [&](Backend& backend, Communicator& communicator) {
    Replica replica(backend, communicator, job);
    replica.set_params(weights.params);
    for (std::int64_t begin = 0; begin < n; begin += kChunk) {
      Split chunk{job.evaluated_train.source, {}};
      chunk.indices.resize(static_cast<std::size_t>(std::min(kChunk, n - begin)));
      std::iota(chunk.indices.begin(), chunk.indices.end(), begin);
      const EvalResult result = evaluate_split(replica, job, chunk, "predict");
      const auto problems =
          gather_problems(communicator, job, *unreadable, chunk.indices.back() + 1);
      if (communicator.rank() == 0) write(chunk, result.samples, problems);
    }
  });
  if (!reads) return 0;
  if (!options.out.empty()) write_results(options.out, std::as_bytes(std::span(kept)));
  if (bad == 0) return 0;
  // Not thrown: the other processes have nothing to hear of it.
  say(fmt::format("error: {} of {} pictures could not be read: they have no prediction", bad, n));
  return static_cast<int>(ErrorKind::data);
}

}  // namespace

int run_predict(const PredictOptions& options) {
  return run_in_world(options.processes, [&](ProcessGroup* processes) {
    return predict_in_world(options, processes);
  });
}

}  // namespace dpt
