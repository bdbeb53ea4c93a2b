// dpt eval RUN|CKPT: measures a checkpoint on a split of its data.
#include "app/evaluate/command_eval.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "app/base/command_support.h"
#include "app/base/console.h"
#include "app/base/world_run.h"
#include "app/evaluate/checkpoint_choice.h"
#include "app/evaluate/class_tables.h"
#include "app/evaluate/label_tables.h"
#include "app/evaluate/model_changes.h"
#include "app/evaluate/predictions.h"
#include "app/evaluate/run_evaluation.h"
#include "app/gate/gate.h"
#include "engine/checkpoints/checkpoint.h"
#include "engine/data/split.h"
#include "engine/job/job_facts.h"
#include "engine/job/starting_point.h"
#include "engine/processes/control_types.h"
#include "engine/training/run_report.h"
#include "engine/training/trainer.h"
#include "kernels/base/json_text.h"
#include "kernels/base/terminal.h"
#include "kernels/base/text.h"

namespace dpt {
namespace {

constexpr CheckpointUse kToEvaluate{"eval", "evaluate", "evaluated"};

/// Refuses to measure a checkpoint on data other than the run's, unless that is allowed. Returns
/// the difference that was allowed.
std::string check_same_data(const std::string& path, const CheckpointHeader& header,
                            const EvaluationJob& evaluation, bool is_allowed) {
  const std::string difference = difference_from_run(path, header, evaluation);
  if (!difference.empty() && !is_allowed) {
    fail(ErrorKind::data,
         "{}: {}. Restore the data, say where it is, e.g. with data.root=DIR, or evaluate on "
         "this data with --allow-other-data",
         path, difference);
  }
  return difference;
}

/// Prints a warning that must accompany the results, and adds it to the verdict.
void warn_of(const std::string& path, const std::string& text, Gate& gate) {
  if (text.empty()) return;
  say(fmt::format("warning: {}: {}", path, text));
  gate.note(text);
}

/// Returns the option or config that allowed data other than the run's.
std::string allowed_by(const EvaluationSpec& config) {
  return fmt::format(" ({})",
                     config.data_config.empty() ? "--allow-other-data" : config.data_config);
}

/// Prints a line with the results of a split and, for each metric with one value per class, a line
/// for each value.
void print_result(const std::string& weights, const EvalResult& result) {
  if (!std::isfinite(result.loss)) {
    say(fmt::format(
        "warning: the {} loss is not a finite number: dpt data check names samples with "
        "NaN or infinite values",
        result.split));
  }
  fmt::print("{}: {} split, {}", weights, result.split, counted(result.n, "sample"));
  if (result.unreadable > 0) fmt::print(", {} unreadable", result.unreadable);
  fmt::print(": loss {:.4f}", result.loss);
  if (result.accuracy) fmt::print(", accuracy {:.4f}", *result.accuracy);
  for (const auto& [metric, value] : result.metrics) fmt::print(", {} {:.4f}", metric, value);
  for (const auto& [metric, count] : result.left_out) {
    fmt::print(", {} class{} left out of {}", count, count == 1 ? "" : "es", metric);
  }
  fmt::print("\n");
  for (const auto& [metric, values] : result.by_class) {
    for (const auto& [of, value] : values)
      fmt::print("  {} of {}: {:.4f}\n", metric, shown_name(of), value);
  }
}

/// Reports the samples that this process left out.
void name_left_out(const Job& job) {
  if (!job.data.bad_samples) return;
  for (const std::string& problem : job.data.bad_samples->take_new()) {
    say(fmt::format("warning: left out: {}", problem));
  }
}

/// Refuses conditions on a split other than the evaluated one.
void check_required_split(const EvalOptions& options, const Gate& gate, const Job& job,
                          const std::string& name) {
  for (const Condition& condition : gate.conditions()) {
    if (condition.results == name) continue;
    // The default split is not test, so there is no test split: split_by_name throws and explains
    // why.
    if (options.split.empty() && condition.results == "test") split_by_name(job, "test");
    const std::string advice =
        condition.split() == name
            ? fmt::format("write {}/{}", name, condition.metric)
            : fmt::format("--split {} evaluates that split", condition.split());
    fail(ErrorKind::usage, "--require {}: expected a metric of the evaluated split ({}): {}",
         condition.text, name, advice);
  }
}

/// Chooses which results of each sample the evaluation keeps.
void choose_kept(const EvalOptions& options, Job& job) {
  const TargetKind targets = job.model.loss.targets.kind;
  const bool is_hot = targets == TargetKind::multi_hot;
  if (options.best_thresholds && !is_hot) {
    fail(ErrorKind::usage,
         "--best-thresholds: expected multi_hot targets, whose labels have thresholds, found {}",
         text_of(targets));
  }
  job.model.keeps_confidence = has_labels(targets);
  job.model.keeps_outputs = is_hot || (!options.predictions.empty() &&
                                       (options.probabilities || !job.model.keeps_confidence));
}

/// Printed results of a checkpoint.
struct Evaluated {
  const std::string& path;
  const WeightsChoice& weights;
  const EvalResult& result;
  std::optional<EvaluatedClasses> classes;
  std::optional<EvaluatedLabels> labels;
  const std::vector<std::string>& other_model;
  const std::string& other_data;
};

void print_json(const EvalOptions& options, const Evaluated& of) {
  Json out = {{"split", of.result.split}, {"n", of.result.n}, {"loss", of.result.loss}};
  if (of.result.unreadable > 0) out["unreadable"] = of.result.unreadable;
  add_values(out, of.result);
  if (of.classes) add_classes(out, *of.classes);
  if (of.labels) add_labels(out, *of.labels, options.best_thresholds);
  if (of.weights.has_average) out["weights"] = of.weights.name;
  if (!of.other_model.empty()) out["other_model"] = of.other_model;
  if (!of.other_data.empty()) out["other_data"] = of.other_data;
  fmt::print("{}\n", json_text(out));
}

void print_text(const EvalOptions& options, const Evaluated& of) {
  print_result(of.path + of.weights.words(), of.result);
  // Print tables only for people, not for programs that read the lines above.
  const bool wants_tables = options.table || options.best_thresholds || isatty(STDOUT_FILENO) == 1;
  if (of.classes && wants_tables) {
    fmt::print("{}", text_of_classes(*of.classes, has_colours(STDOUT_FILENO)));
  }
  if (of.labels && wants_tables) {
    fmt::print("{}", text_of_labels(*of.labels, options.best_thresholds));
  }
}

int eval_in_world(const EvalOptions& options, ProcessGroup* processes, Gate& gate) {
  // Only rank 0 reads the checkpoint.
  const bool reads = !processes || processes->is_first();
  const std::string path =
      reads ? find_checkpoint(options.target, kToEvaluate) : "the checkpoint of rank 0";
  CheckpointHeader header;
  if (reads) header = read_checkpoint_header(path);
  if (processes) share_header(*processes, header);
  EvaluationSpec config = spec_for_evaluation(header, path, options.overrides, options.devices);
  check_model_changes(path, config.changes, "eval", options.allow_other_model,
                      ", or evaluate the weights in this model with --allow-other-model");
  const bool any_data = options.allow_other_data || !config.data_config.empty();
  EvaluationJob evaluation =
      load_evaluation(std::move(config.spec), header, options.split, any_data, processes);
  Job& job = evaluation.job;
  const std::string& name = evaluation.split;
  const Split& split = split_by_name(job, name);
  check_required_split(options, gate, job, name);
  measure_top5(job);
  check_metrics_of(gate.conditions(), job.model.metrics);
  choose_kept(options, job);
  compare_and_connect(
      job, {{"--split", name}, {"--predictions", job.model.keeps_outputs ? "with outputs" : ""}});
  if (!reads) {
    StartingPoint start = share_start(job, {});
    evaluate_on_ranks(job, split, name, start.params);
    name_left_out(job);
    return 0;
  }
  const std::string other_data = check_same_data(path, header, evaluation, any_data);
  warn_of(path, text_of_changes(config.changes), gate);
  warn_of(path, other_data.empty() ? other_data : other_data + allowed_by(config), gate);
  const Checkpoint checkpoint = load_checkpoint(path, job.model.plan);
  const WeightsChoice chosen = choose_weights(checkpoint, options.use, job.spec, path);

  StartingPoint weights;
  weights.params = *chosen.params;
  if (processes) weights = share_start(job, [&] { return weights; });
  const EvalResult result = evaluate_with_progress(job, split, name, weights.params);
  name_left_out(job);
  if (!options.predictions.empty()) {
    const std::string table = predictions_table(job, split, result.samples, job.model.keeps_outputs,
                                                label_text(job.spec, split.source->classes()));
    write_results(options.predictions, std::as_bytes(std::span(table)));
  }
  const Evaluated evaluated{path,
                            chosen,
                            result,
                            evaluate_classes(job, split, result),
                            evaluate_labels(job, split, result),
                            config.changes,
                            other_data};
  options.json ? print_json(options, evaluated) : print_text(options, evaluated);
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
