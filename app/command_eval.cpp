// dpt eval RUN|CKPT: measures a checkpoint on a split of its data.
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>

#include "app/catalog.h"
#include "app/command_support.h"
#include "app/commands.h"
#include "app/console.h"
#include "app/world_run.h"
#include "engine/checkpoints/checkpoint.h"
#include "engine/checkpoints/file_io.h"
#include "engine/data/target_rows.h"
#include "engine/spec/read_spec.h"
#include "engine/training/best.h"
#include "engine/training/run_folder.h"
#include "engine/training/run_ranks.h"
#include "engine/training/run_report.h"
#include "engine/training/trainer.h"
#include "kernels/json_text.h"

namespace dpt {
namespace fs = std::filesystem;
namespace {

/// Whether `best` was saved as the best of the run with this config: then it may be later than the
/// run's newest checkpoint. Throws ErrorKind::data for a damaged file.
bool is_best_of_run(const std::string& best, const std::string& config) {
  const CheckpointHeader header = read_checkpoint_header(best);
  return header.state.best && header.state.best_step == header.state.step &&
         refused_changes(catalog(), header.config, best, config).empty();
}

[[noreturn]] void refuse_best(const std::string& expected, const std::string& best,
                              const std::string& why_not) {
  fail(ErrorKind::data,
       "expected {}, but {}. Resume the run to restore its best, or name the file to evaluate: dpt "
       "eval {}",
       expected, why_not, best);
}

/// The best checkpoint of a run folder whose newest good one is `newest`, else that one. A file in
/// its place that is none of the run's is refused.
std::string best_or_newest(const std::string& folder, const std::string& newest) {
  const std::string best = folder + "/best.safetensors";
  const CheckpointHeader header = read_checkpoint_header(newest);
  const RunState& run = header.state;
  const std::string why_not = run.best ? why_not_best(best, run) : std::string();
  std::error_code error;
  const bool is_there = fs::exists(best, error);
  if (run.best && why_not.empty()) return best;
  if (!run.best && !is_there) return newest;

  const std::string kept = folder + "/checkpoints/" + checkpoint_name(run.best_step);
  const bool has_kept = run.best && why_not_best(kept, run).empty();
  if (is_there) {
    const std::int64_t step = read_checkpoint_header(best).state.step;
    const bool is_of_run = is_best_of_run(best, header.config);
    // A best that came after the newest checkpoint is saved alone.
    if (is_of_run && step > run.step) return best;
    const std::string another = best + " is of another run";
    if (!run.best) {
      refuse_best(fmt::format("a run without a best so far (according to {})", newest), best,
                  another);
    }
    // A crash, or a full disk, came between the checkpoint and its copy.
    if (!is_of_run || step > run.best_step || !has_kept) {
      refuse_best(fmt::format("the run's best checkpoint, of step {} (according to {})",
                              run.best_step, newest),
                  best, step > run.step ? another : why_not);
    }
  }
  say(fmt::format("warning: {}; {} is evaluated, which is the {}", why_not,
                  has_kept ? kept : newest,
                  has_kept ? "best checkpoint" : "newest checkpoint, not the best"));
  return has_kept ? kept : newest;
}

/// A run folder's best checkpoint, else its newest good one; or the file itself.
std::string find_checkpoint(const std::string& target) {
  std::error_code error;  // of a name that is too long or a folder that is closed to us
  if (fs::is_regular_file(target, error)) return target;
  if (!fs::is_directory(target, error)) {
    fail(ErrorKind::data, "{}: no such run folder or checkpoint", target);
  }
  const std::string newest = newest_good_checkpoint(
      target + "/checkpoints", [](const std::string& text) { say("warning: " + text); });
  if (!newest.empty()) return best_or_newest(target, newest);
  const std::string best = target + "/best.safetensors";
  if (!fs::exists(best, error)) {
    const std::string replaced = folder_of_run(target);
    fail(ErrorKind::data, "{}: the run folder has no good checkpoint{}", target,
         replaced == target
             ? std::string()
             : fmt::format(". {} holds the run that --overwrite was to replace: evaluate that, or "
                           "run dpt train again without --overwrite, which restores it",
                           replaced));
  }
  const std::string config = target + "/config.yaml";
  if (fs::exists(config, error) && !is_best_of_run(best, read_whole_file(config))) {
    refuse_best("the best checkpoint of the run of " + config, best, best + " is of another run");
  }
  return best;
}

/// A CSV field, quoted where it must be (RFC 4180).
std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

/// Refuses to measure a checkpoint on other data than the run's: results would be compared that do
/// not compare, and another number of training samples is another validation split, so that
/// samples the weights were trained on would be taken for unseen ones.
void check_same_data(const std::string& path, const CheckpointHeader& header, const Job& job,
                     const std::string& split, bool is_allowed) {
  std::string difference =
      difference_of_data("training", header.dataset_fingerprint, *job.splits.train.source);
  const char* effect = "the val split may contain samples that the weights were trained on";
  if (split == "test") {
    effect = "the test samples may differ too";
    const std::string of_test =
        difference_of_data("test", header.test_fingerprint, *job.splits.test.source);
    if (!of_test.empty()) {
      difference = of_test;
      effect = "the result does not compare with the run's";
    }
  } else if (difference.empty()) {
    // The split of the training files is a function of these.
    const TrainSpec run = load_stored_spec(catalog(), header.config, path);
    if (run.seed != job.spec.seed || run.data.val_split != job.spec.data.val_split) {
      difference = fmt::format(
          "expected the run's split of the training files (seed={}, data.val_split={}), found "
          "seed={}, data.val_split={}",
          run.seed, run.data.val_split, job.spec.seed, job.spec.data.val_split);
    }
  }
  if (difference.empty()) return;
  if (!is_allowed) {
    fail(ErrorKind::data,
         "{}: {}; {}. Restore the data, give its folder with data.root=DIR, or evaluate on this "
         "data with --allow-other-data",
         path, difference, effect);
  }
  say(fmt::format("warning: {}: {}; {} (--allow-other-data)", path, difference, effect));
}

double value_of(const EvalResult& result, const std::string& metric) {
  if (metric == "loss") return result.loss;
  for (const auto& [name, value] : result.metrics) {
    if (name == metric) return value;
  }
  return result.accuracy.value_or(NAN);
}

/// The name of a class or an output.
std::string name_of(const Split& split, std::size_t index) {
  const std::vector<std::string>& names = split.source->classes();
  return index < names.size() ? names[index] : std::to_string(index);
}

/// The end of the first line of a table, or of that of a sample: the loss holds the weight, which
/// follows.
std::string last_names(const TargetRows& targets) {
  return targets.weighted() ? ",loss,weight\n" : ",loss\n";
}
std::string last(TargetRows& targets, std::size_t position, float loss) {
  return targets.weighted() ? fmt::format(",{:.9g},{:.9g}\n", loss, targets.weight(position))
                            : fmt::format(",{:.9g}\n", loss);
}

std::string labels_table(const Split& split, const SampleResults& samples) {
  TargetRows targets(split);
  const auto name = [&](std::int32_t label) {
    return csv_field(name_of(split, static_cast<std::size_t>(label)));
  };
  std::string text = "index,label,prediction,label_name,prediction_name" + last_names(targets);
  for (std::size_t i = 0; i < samples.loss.size(); ++i) {
    text += fmt::format("{},{},{},{},{}", split.indices[i], samples.label[i], samples.prediction[i],
                        name(samples.label[i]), name(samples.prediction[i]));
    text += last(targets, i, samples.loss[i]);
  }
  return text;
}

/// Of samples without labels: each output's target and what the output says of it.
std::string outputs_table(const Split& split, const SampleResults& samples) {
  const auto width = static_cast<std::size_t>(split.source->targets().values);
  TargetRows targets(split);
  std::string text = "index";
  for (const char* what : {"target", "prediction"}) {
    for (std::size_t c = 0; c < width; ++c) {
      text += "," + csv_field(fmt::format("{}_{}", what, name_of(split, c)));
    }
  }
  text += last_names(targets);
  for (std::size_t i = 0; i < samples.loss.size(); ++i) {
    const std::span<const float> row = targets.values(i);
    text += fmt::format("{}", split.indices[i]);
    for (std::size_t c = 0; c < width; ++c) text += fmt::format(",{:.9g}", row[c]);
    for (std::size_t c = 0; c < width; ++c) {
      text += fmt::format(",{:.9g}", samples.outputs[i * width + c]);
    }
    text += last(targets, i, samples.loss[i]);
  }
  return text;
}

void write_predictions(const std::string& path, const Split& split, const EvalResult& result) {
  const std::string text = has_labels(split.source->targets().kind)
                               ? labels_table(split, result.samples)
                               : outputs_table(split, result.samples);
  write_results(path, std::as_bytes(std::span(text)));
}

/// The split with these weights, by all ranks of the job; the same on each of its processes.
EvalResult evaluate_on_ranks(const Job& job, const Split& split, const std::string& name,
                             const std::vector<float>& params) {
  EvalResult result;
  run_ranks(job, [&](Backend& backend, Communicator& communicator) {
    Replica replica(backend, communicator, job);
    replica.set_params(params);
    EvalResult mine = evaluate_split(replica, job, split, name);
    if (communicator.rank() == job.first_rank()) result = std::move(mine);
  });
  return result;
}

int eval_in_world(const EvalOptions& options, ProcessGroup* processes) {
  std::vector<Requirement> requirements;
  for (const std::string& text : options.requirements) {
    requirements.push_back(parse_requirement(text));
  }
  // The checkpoint is rank 0's to read.
  const bool reads = !processes || processes->is_first();
  const std::string path = reads ? find_checkpoint(options.target) : "the checkpoint of rank 0";
  CheckpointHeader header;
  if (reads) header = read_checkpoint_header(path);
  if (processes) header.config = processes->share("config of the checkpoint", header.config);
  // The config comes from the checkpoint; where the data is and what runs it may be of today. With
  // other devices than at training, "auto" is what a reader of results expects, of device weights
  // too.
  std::vector<std::string> overrides = options.overrides;
  overrides.insert(overrides.begin(), "device_weights=auto");
  overrides.push_back("train.shards=0");
  Job job = load_job(load_stored_spec(catalog(), header.config, path,
                                      with_devices(std::move(overrides), options.devices)),
                     processes);
  const std::string name = !options.split.empty()       ? options.split
                           : job.splits.test.size() > 0 ? "test"
                                                        : "val";
  const Split& split = split_by_name(job, name);
  for (const Requirement& requirement : requirements) {
    if (requirement.split != name) {
      fail(ErrorKind::usage, "--require {}: expected a metric of the evaluated split, {}",
           requirement.text, name);
    }
  }
  check_metrics_of(requirements, job.metrics);
  job.keeps_outputs = !options.predictions.empty() && !has_labels(job.loss.targets.kind);
  compare_and_connect(
      job, {{"--split", name}, {"--predictions", job.keeps_outputs ? "with outputs" : ""}});
  if (!reads) {
    StartingPoint start = share_start(job, {});
    evaluate_on_ranks(job, split, name, start.params);
    return 0;
  }
  check_same_data(path, header, job, name, options.allow_other_data);
  const Checkpoint checkpoint = load_checkpoint(path, job.plan);
  const auto* average = average_of(checkpoint);
  const std::string averages = average ? average->first : std::string();
  if (is_average(options.use) && options.use != averages) {
    fail(ErrorKind::usage, "--use {}: {} has no such average of the weights: {}{}", options.use,
         path,
         options.use == kSwa && job.spec.train.swa
             ? "it is from before the first epoch of train.swa"
             : fmt::format("the run was made without train.{}", options.use),
         average ? fmt::format("; it has that of train.{} (--use {})", averages, averages) : "");
  }
  const bool uses_average = average && options.use != "raw";

  StartingPoint weights;
  weights.params = uses_average ? average->second : checkpoint.params;
  if (processes) weights = share_start(job, [&] { return weights; });
  const EvalResult result = evaluate_on_ranks(job, split, name, weights.params);
  if (!options.predictions.empty()) write_predictions(options.predictions, split, result);
  if (options.json) {
    Json out = {{"split", name}, {"n", result.n}, {"loss", result.loss}};
    add_values(out, result);
    if (average) out["weights"] = uses_average ? averages : "raw";
    fmt::print("{}\n", json_text(out));
  } else {
    fmt::print("{}{}: {} split, {} samples: loss {:.4f}", path,
               !uses_average      ? ""
               : averages == kSwa ? " (average of epochs)"
                                  : " (moving average)",
               name, result.n, result.loss);
    if (result.accuracy) fmt::print(", accuracy {:.4f}", *result.accuracy);
    for (const auto& [metric, value] : result.metrics) fmt::print(", {} {:.4f}", metric, value);
    fmt::print("\n");
    for (const auto& [metric, classes] : result.by_class) {
      for (const auto& [of, value] : classes) fmt::print("  {} of {}: {:.4f}\n", metric, of, value);
    }
  }
  for (const Requirement& requirement : requirements) {
    const double value = value_of(result, requirement.metric);
    if (!is_met(requirement, value)) {
      fail(ErrorKind::requirement, "--require {}: not met: the value is {:.6g}", requirement.text,
           value);
    }
  }
  return 0;
}

}  // namespace

int run_eval(const EvalOptions& options) {
  return run_in_world(options.processes,
                      [&](ProcessGroup* processes) { return eval_in_world(options, processes); });
}

}  // namespace dpt
