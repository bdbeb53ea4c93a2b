// dpt predict RUN|CKPT IMAGE...|CONFIG: predicts samples. Labels are not needed.
#include "app/evaluate/command_predict.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "app/base/catalog.h"
#include "app/base/command_support.h"
#include "app/base/console.h"
#include "app/base/progress_line.h"
#include "app/base/world_run.h"
#include "app/evaluate/checkpoint_choice.h"
#include "app/evaluate/predicted_samples.h"
#include "app/evaluate/prediction_lines.h"
#include "app/evaluate/prediction_ranges.h"
#include "app/evaluate/predictions.h"
#include "datasets/dataset.h"
#include "engine/checkpoints/checkpoint.h"
#include "engine/collectives/gather_texts.h"
#include "engine/config/read_spec.h"
#include "engine/data/data_sets.h"
#include "engine/data/split.h"
#include "engine/graph/make_plan.h"
#include "engine/job/job_facts.h"
#include "engine/job/run_ranks.h"
#include "engine/job/starting_point.h"
#include "engine/losses/loss.h"
#include "engine/processes/control_types.h"
#include "engine/processes/process_devices.h"
#include "engine/schedules/schedule.h"
#include "engine/training/run_report.h"
#include "engine/training/trainer.h"
#include "kernels/base/json_text.h"

namespace dpt {
namespace {

constexpr CheckpointUse kToPredict{"predict", "use", "used"};

/// Returns the config without the parts that only training needs: their data may be missing.
TrainSpec without_training(TrainSpec spec) {
  spec.data.val_split = {};
  spec.data.sampler = Sampler::uniform;
  spec.data.cache.clear();
  spec.data.transforms.train = spec.data.transforms.eval;
  spec.data.transforms.batch.clear();
  if (spec.data.on_bad_sample == OnBadSample::skip) spec.data.on_bad_sample = OnBadSample::stop;
  // Outputs do not depend on the loss's options, such as class weights.
  spec.loss = loss_kinds().with_defaults(spec.loss.type);
  spec.metrics.clear();
  spec.lr_schedule = schedule_kinds().with_defaults("constant");
  spec.warmup = {};
  return spec;
}

/// Returns the shape of the targets on which the model was trained. Checkpoints of dpt before 1.6
/// do not contain it, and their data may be missing. For these checkpoints, assumes one target per
/// output if the loss is elementwise and the kind of data set allows targets other than class
/// labels. Otherwise, assumes class labels.
TargetShape targets_of(const TrainSpec& spec, std::optional<TargetKind> stored,
                       std::int64_t outputs) {
  if (stored == TargetKind::class_index) return {};
  if (stored) return {*stored, outputs, false};
  if (spec.loss.type == "cross_entropy" || !dataset_kind(spec.data.dataset).any_targets) return {};
  return {spec.loss.type == "bce_with_logits" ? TargetKind::multi_hot : TargetKind::values, outputs,
          false};
}

void check_top(const PredictOptions& options, const TrainSpec& spec, const Plan& plan,
               const TargetShape& targets) {
  if (options.top > plan.classes) {
    fail(ErrorKind::usage, "--top: expected 1 to {} (the model's classes), found {}", plan.classes,
         options.top);
  }
  if (options.top > 1 && !has_labels(targets.kind)) {
    fail(ErrorKind::usage,
         "--top {}: the model's outputs are not classes (loss {}), so all of them are printed: "
         "leave --top out",
         options.top, spec.loss.type);
  }
}

/// Warns that a run trained on arrays or tables was not trained on image files.
void warn_of_arrays(const TrainSpec& spec, bool reports) {
  const DatasetKind& kind = dataset_kind(spec.data.dataset);
  if (!reports || !kind.any_type) return;
  if (kind.declares && kind.declares(spec.data.dataset).images) return;
  say(fmt::format(
      "warning: the run was trained on a data set of the kind {}, not on image files: images are "
      "resized to the model's input and scaled to 0..1 before data.transforms.eval; if the run's "
      "samples were prepared in another way, give them as a data set (data.test...)",
      spec.data.dataset.type));
}

/// Collects the problems of the samples with indices below `end` from all processes: each process
/// knows only those of the samples that it read. Collective. Returns the same map, from index to
/// problem, on every rank.
std::map<std::int64_t, std::string> gather_problems(Communicator& communicator, const Job& job,
                                                    UnreadableSamples& unreadable,
                                                    std::int64_t end) {
  Json own = Json::array();
  if (communicator.rank() == job.placement.first_rank()) {
    for (const auto& [index, problem] : unreadable.take_below(end)) own.push_back({index, problem});
  }
  std::map<std::int64_t, std::string> problems;
  for (const std::string& text :
       gather_texts(communicator, own.empty() ? std::string() : json_text(own))) {
    if (text.empty()) continue;
    for (const Json& each : Json::parse(text)) {
      problems.emplace(each[0].get<std::int64_t>(), each[1].get<std::string>());
    }
  }
  return problems;
}

/// Returns where to show progress: on a terminal, unless predictions are printed there too.
ProgressLine::Shown shown_progress(const PredictOptions& options, const Job& job) {
  // A pipe may end in the same terminal: dpt predict RUN FOLDER | head.
  struct stat status = {};
  const bool is_pipe = fstat(STDOUT_FILENO, &status) == 0 && S_ISFIFO(status.st_mode);
  const bool shows_results = options.out.empty() && (isatty(STDOUT_FILENO) == 1 || is_pipe);
  return job.placement.writes() && !shows_results ? ProgressLine::Shown::terminal
                                                  : ProgressLine::Shown::nowhere;
}

int predict_in_world(const PredictOptions& options, ProcessGroup* processes) {
  const PredictInputs inputs = sort_inputs(options, !processes);
  // Only rank 0 reads the checkpoint; each process opens the samples.
  const bool reads = !processes || processes->is_first();
  const std::string path =
      reads ? find_checkpoint(options.target, kToPredict) : "the checkpoint of rank 0";
  CheckpointHeader header;
  if (reads) header = read_checkpoint_header(path);
  if (processes) share_header(*processes, header);
  // Reset settings that would restrict the devices, as dpt eval does.
  const std::vector<std::string> overrides =
      with_devices({"device_weights=auto", "train.shards=0"}, options.devices);
  const TrainSpec of_run = load_stored_spec(catalog(), header.config, path, overrides);
  const TrainSpec of_data = inputs.are_data() ? load_spec_to_predict(catalog(), header.config, path,
                                                                     overrides, inputs.data)
                                              : of_run;
  const TrainSpec spec = without_training(of_data);
  if (processes) processes->introduce(devices_of_process(spec.devices, processes->world()));
  Plan plan = make_plan(spec);
  const TargetShape targets = targets_of(of_run, header.targets, plan.classes);
  check_top(options, spec, plan, targets);

  DataRequirements requirements = data_requirements(spec, plan);
  std::vector<PredictedPart> parts;
  const ModelOutputs outputs{header.classes, targets};
  if (inputs.are_data()) {
    requirements.known_classes = header.classes;
    requirements.features = header.features;
    requirements.type = header.sample_type;
    requirements.leaves_out_files = of_data.data.on_bad_sample == OnBadSample::skip;
    parts = open_data(options, inputs, of_data, requirements, outputs, reads);
  } else {
    warn_of_arrays(spec, reads);
    parts.push_back(open_images(inputs.images, requirements, outputs, reads));
  }
  const auto source_of = [&](std::size_t i) {
    return i < parts.size() ? parts[i].source : nullptr;
  };
  Job job =
      make_job(spec, std::move(plan), {source_of(0), source_of(1), source_of(2)}, {}, processes);
  job.model.keeps_outputs = true;
  compare_and_connect(job, {});
  const StartingPoint weights = share_start(job, [&] {
    const Checkpoint checkpoint = load_checkpoint(path, job.model.plan);
    StartingPoint chosen;
    chosen.params = *choose_weights(checkpoint, options.use, job.spec, path).params;
    return chosen;
  });

  const PredictionLines lines(options, job, *parts[0].source, inputs.are_data(),
                              label_text(of_run, header.classes));
  std::int64_t n = 0, bad = 0;
  for (const PredictedPart& part : parts) n += static_cast<std::int64_t>(part.indices.size());
  std::string kept = lines.first();
  const auto write = [&](const PredictedPart& part, const Split& chunk,
                         const SampleResults& samples,
                         const std::map<std::int64_t, std::string>& problems) {
    for (std::size_t i = 0; i < chunk.indices.size(); ++i) {
      // `problems` may also contain samples of other ranges.
      const auto problem = problems.find(chunk.indices[i]);
      const bool is_good = problem == problems.end();
      kept += lines.line(part, chunk.indices[i], samples, i, is_good ? nullptr : &problem->second);
      if (is_good) continue;
      say(problem->second);
      ++bad;
    }
    if (!options.out.empty()) return;
    fmt::print("{}", kept);
    std::fflush(stdout);  // a failure is recorded and reported at the end
    kept.clear();
  };
  ProgressLine line(shown_progress(options, job));
  std::int64_t done = 0;
  run_ranks(job, [&](Backend& backend, Communicator& communicator) {
    Replica replica(backend, communicator, job);
    replica.set_params(weights.params);
    // make_job has stored the parts in these members, in this order.
    const std::array places = {&job.data.evaluated_train, &job.data.splits.test,
                               &job.data.splits.val};
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const PredictedPart& part = parts[i];
      const Split& whole = *places.at(i);
      const auto size = static_cast<std::int64_t>(part.indices.size());
      for (const Range& range : prediction_ranges(size, job.eval_batch(), communicator.size())) {
        const auto first = part.indices.begin();
        const Split chunk{whole.source, {first + range.begin, first + range.end}};
        const EvalResult result =
            evaluate_split(replica, job, chunk, "predict", [&](std::int64_t more) {
              line.update("predicted", done + more, n, noun_of_samples(job));
            });
        const auto problems =
            gather_problems(communicator, job, *part.unreadable, chunk.indices.back() + 1);
        if (communicator.rank() == job.placement.first_rank()) done += chunk.size();
        if (communicator.rank() == 0) write(part, chunk, result.samples, problems);
      }
    }
  });
  if (!reads) return 0;
  if (!options.out.empty()) write_results(options.out, std::as_bytes(std::span(kept)));
  if (bad == 0) return 0;
  // Do not throw, because the other processes would fail too.
  say(fmt::format("error: {} of {} {} could not be read and {} no prediction", bad, n,
                  inputs.are_data() ? "samples" : "images", bad == 1 ? "has" : "have"));
  return static_cast<int>(ErrorKind::data);
}

}  // namespace

int run_predict(const PredictOptions& options) {
  const RunIdentity run = identity_of("predict", options.target, {});
  return run_in_world(options.processes, run, [&](ProcessGroup* processes) {
    check_replaceable(
        "--out", options.out, "list of predictions",
        {"index,predict", "index,path,predict", "path,predict", "{\"index\":", "{\"path\":"});
    return predict_in_world(options, processes);
  });
}

}  // namespace dpt
