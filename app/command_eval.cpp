// dpt eval RUN|CKPT: measures a checkpoint on a split of its data.
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "app/checkpoint_choice.h"
#include "app/class_tables.h"
#include "app/command_support.h"
#include "app/commands.h"
#include "app/console.h"
#include "app/gate.h"
#include "app/model_changes.h"
#include "app/predictions.h"
#include "app/run_evaluation.h"
#include "app/world_run.h"
#include "engine/checkpoints/checkpoint.h"
#include "engine/training/run_report.h"
#include "engine/training/trainer.h"
#include "kernels/json_text.h"
#include "kernels/terminal.h"

namespace dpt {
namespace {

constexpr CheckpointUse kToEvaluate{"eval", "evaluate", "evaluated"};

/// Refuses to measure a checkpoint on other data than the run's, unless that is allowed. Returns
/// the difference that was allowed.
std::string check_same_data(const std::string& path, const CheckpointHeader& header, const Job& job,
                            const std::string& split, bool is_allowed) {
  const std::string difference = difference_from_run(path, header, job, split);
  if (!difference.empty() && !is_allowed) {
    fail(ErrorKind::data,
         "{}: {}. Restore the data, give its folder with data.root=DIR, or evaluate on this "
         "data with --allow-other-data",
         path, difference);
  }
  return difference;
}

/// Adds a warning that must accompany the results, for the user and in the verdict.
void warn_of(const std::string& path, const std::string& text, Gate& gate) {
  if (text.empty()) return;
  say(fmt::format("warning: {}: {}", path, text));
  gate.note(text);
}

/// Prints the line of a split, and one for each class of the metrics that have classes.
void print_result(const std::string& weights, const EvalResult& result) {
  fmt::print("{}: {} split, {} samples: loss {:.4f}", weights, result.split, result.n, result.loss);
  if (result.accuracy) fmt::print(", accuracy {:.4f}", *result.accuracy);
  for (const auto& [metric, value] : result.metrics) fmt::print(", {} {:.4f}", metric, value);
  fmt::print("\n");
  for (const auto& [metric, values] : result.by_class) {
    for (const auto& [of, value] : values) fmt::print("  {} of {}: {:.4f}\n", metric, of, value);
  }
}

int eval_in_world(const EvalOptions& options, ProcessGroup* processes, Gate& gate) {
  // The checkpoint is rank 0's to read.
  const bool reads = !processes || processes->is_first();
  const std::string path =
      reads ? find_checkpoint(options.target, kToEvaluate) : "the checkpoint of rank 0";
  CheckpointHeader header;
  if (reads) header = read_checkpoint_header(path);
  if (processes) share_header(*processes, header);
  EvaluationSpec config = spec_for_evaluation(header, path, options.overrides, options.devices);
  check_model_changes(path, config.changes, "eval", options.allow_other_model,
                      ", or evaluate the weights in this model with --allow-other-model");
  Job job = load_job(std::move(config.spec), processes,
                     options.split.empty()     ? UsedFiles::default_split
                     : options.split == "test" ? UsedFiles::test
                                               : UsedFiles::train,
                     header.classes);
  const std::string name = !options.split.empty()       ? options.split
                           : job.splits.test.size() > 0 ? "test"
                                                        : "val";
  const Split& split = split_by_name(job, name);
  for (const Requirement& requirement : gate.requirements()) {
    if (requirement.results != name) {
      // Nothing says which split is meant, and that one has no samples.
      if (options.split.empty() && requirement.results == "test") split_by_name(job, "test");
      fail(ErrorKind::usage, "--require {}: expected a metric of the evaluated split, {}",
           requirement.text, name);
    }
  }
  measure_top5(job);
  check_metrics_of(gate.requirements(), job.metrics);
  const bool labelled = has_labels(job.loss.targets.kind);
  job.keeps_outputs = !options.predictions.empty() && (options.probabilities || !labelled);
  job.keeps_confidence = labelled;
  compare_and_connect(
      job, {{"--split", name}, {"--predictions", job.keeps_outputs ? "with outputs" : ""}});
  if (!reads) {
    StartingPoint start = share_start(job, {});
    evaluate_on_ranks(job, split, name, start.params);
    return 0;
  }
  const std::string other_data = check_same_data(path, header, job, name, options.allow_other_data);
  warn_of(path, text_of_changes(config.changes), gate);
  warn_of(path, other_data.empty() ? other_data : other_data + " (--allow-other-data)", gate);
  const Checkpoint checkpoint = load_checkpoint(path, job.plan);
  const WeightsChoice chosen = choose_weights(checkpoint, options.use, job.spec, path);

  StartingPoint weights;
  weights.params = *chosen.params;
  if (processes) weights = share_start(job, [&] { return weights; });
  const EvalResult result = evaluate_with_progress(job, split, name, weights.params);
  if (!options.predictions.empty()) {
    const std::string table = predictions_table(job, split, result.samples, job.keeps_outputs);
    write_results(options.predictions, std::as_bytes(std::span(table)));
  }
  const std::optional<EvaluatedClasses> classes = evaluate_classes(job, split, result);
  if (options.json) {
    Json out = {{"split", name}, {"n", result.n}, {"loss", result.loss}};
    add_values(out, result);
    if (classes) add_classes(out, *classes);
    if (chosen.has_average) out["weights"] = chosen.name;
    if (!config.changes.empty()) out["other_model"] = config.changes;
    if (!other_data.empty()) out["other_data"] = other_data;
    fmt::print("{}\n", json_text(out));
  } else {
    print_result(path + chosen.words(), result);
    // Programs that read the lines above are spared the tables.
    const bool wants_tables = options.table || isatty(STDOUT_FILENO) == 1;
    if (classes && wants_tables) {
      fmt::print("{}", text_of_classes(*classes, has_colours(STDOUT_FILENO)));
    }
  }
  Json values = {{"n", result.n}, {"loss", result.loss}};
  add_values(values, result);
  gate.judge({Json{{name, values}}, {}}, path);
  return 0;
}

}  // namespace

int run_eval(const EvalOptions& options) {
  const RunIdentity run = identity_of("eval", options.target, options.overrides);
  return run_in_world(options.processes, run, [&](ProcessGroup* processes) {
    check_replaceable("--predictions", options.predictions, "table of predictions", {"index,"});
    Gate gate(options.gate, "eval", options.target, !processes || processes->is_first(), true);
    return gate.guard([&] { return eval_in_world(options, processes, gate); });
  });
}

}  // namespace dpt
