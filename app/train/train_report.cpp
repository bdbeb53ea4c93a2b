#include "app/train/train_report.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "app/train/train_options.h"
#include "engine/checkpoints/checkpoint.h"
#include "engine/config/secrets.h"
#include "engine/processes/process_devices.h"
#include "engine/processes/process_group.h"
#include "engine/training/run_report.h"
#include "kernels/base/shell_word.h"
#include "kernels/base/text.h"
#include "kernels/devices.h"

namespace dpt {
namespace {

/// Returns the validation results of a state; null if it has none.
Json val_values(const RunState& state, bool has_accuracy) {
  if (!state.val_loss || (has_accuracy && !state.val_accuracy)) return {};
  Json values = {{"n", state.val_n}, {"loss", *state.val_loss}};
  if (has_accuracy) values["accuracy"] = *state.val_accuracy;
  add_values(values, state.val_metrics);
  return values;
}

/// Returns the words of the command line that a resume keeps.
std::vector<std::string> words_to_resume(const TrainOptions& options, bool without_max_steps,
                                         bool without_run_dir) {
  std::vector<std::string> words;
  for (std::size_t i = 0; i < options.command.size(); ++i) {
    const std::string& word = options.command[i];
    const auto is = [&](const std::string& name) {
      if (word == name) ++i;  // and its value
      return word == name || word.rfind(name + "=", 0) == 0;
    };
    if (word == "--overwrite" || is("--resume") || (without_run_dir && is("--run-dir")) ||
        (without_max_steps && is("--max-steps"))) {
      continue;
    }
    words.push_back(word);
  }
  return words;
}

/// Returns the results of the validation after which the best checkpoint was saved; null if there
/// is none, or if its file cannot be read.
Json best_val_of(const Job& job, const RunFolder& folder, const RunState& state) {
  if (!state.best) return {};
  RunState best = state;
  if (state.best_step != state.step) {
    try {
      best = read_checkpoint_header(folder.best_place()).state;
    } catch (const Error&) {
      return {};  // results_of_summary then reads them from the log
    }
    if (best.step != state.best_step) return {};
  }
  const bool has_accuracy = dpt::has_accuracy(job.model.loss.targets.kind);
  Json values = val_values(best, has_accuracy);
  if (values.is_null()) return {};
  values["epoch"] = best.epoch;
  values["step"] = best.step;
  return values;
}

}  // namespace

Json summary_of(const Job& job, const RunFolder& folder, const TrainOutcome& outcome) {
  Json summary;
  summary["v"] = 1;
  summary["run"] = job.spec.name;
  summary["folder"] = folder.current_path();
  summary["status"] = name_of(outcome.end);
  summary["exit_code"] = exit_code_of(outcome.reason);
  summary["epochs"] = outcome.state.epoch;
  summary["steps"] = outcome.state.step;
  summary["seconds"] = outcome.seconds;
  summary["params"] = job.model.plan.param_count;
  summary["devices"] = job.placement.device_names();
  if (outcome.state.best) {
    summary["best"] = {{job.spec.checkpoint.keep_best.monitor, *outcome.state.best},
                       {"step", outcome.state.best_step}};
    const double smoothing = job.spec.checkpoint.keep_best.smoothing;
    if (smoothing > 0) summary["best"]["smoothing"] = smoothing;
  }
  if (outcome.early_stopped) summary["early_stopped"] = true;
  const RunState& state = outcome.state;
  const bool has_accuracy = dpt::has_accuracy(job.model.loss.targets.kind);
  if (state.train_loss && (state.train_accuracy || !has_accuracy)) {
    summary["train"] = {{"loss", *state.train_loss}};
    if (has_accuracy) summary["train"]["accuracy"] = *state.train_accuracy;
    add_values(summary["train"], state.train_metrics);
  }
  if (const Json values = val_values(state, has_accuracy); !values.is_null()) {
    summary["val"] = values;
  }
  if (const Json values = best_val_of(job, folder, state); !values.is_null()) {
    summary["best_val"] = values;
  }
  if (outcome.test) {
    summary["test"] = {{"n", outcome.test->n}, {"loss", outcome.test->loss}};
    if (outcome.test->unreadable > 0) summary["test"]["unreadable"] = outcome.test->unreadable;
    add_values(summary["test"], *outcome.test);
  }
  if (outcome.ledger.sum() > 0) summary["ledger"] = ledger_json(outcome.ledger, job);
  return summary;
}

std::string shell_command(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : without_secrets(words)) {
    if (!line.empty()) line += ' ';
    line += shell_word(word);
  }
  return line;
}

std::string resume_command(const TrainOptions& options, const std::string& checkpoint) {
  std::vector<std::string> words = words_to_resume(options, false, false);
  words.insert(words.end(), {"--resume", checkpoint});
  return shell_command(words);
}

std::string how_to_resume(const TrainOptions& options, const Job& job, const RunFolder& folder,
                          RunEnd end) {
  const bool resumes = options.resume == "auto" || options.resume == "must";
  const std::string path = folder.current_path();
  const bool was_moved = path != folder.path();
  if (resumes && !options.overwrite && end != RunEnd::max_steps && !was_moved) {
    return "run the same command again to resume";
  }
  std::vector<std::string> words = words_to_resume(options, end == RunEnd::max_steps, was_moved);
  if (was_moved || (options.run_dir.empty() && path != "runs/" + job.spec.name)) {
    words.insert(words.end(), {"--run-dir", path});
  }
  return "to resume: " + shell_command(words);
}

std::string why_cores_are_short(const Job& job) {
  const int cores = cpu_info().logical_allowed;
  if (!job.placement.processes || has_own_cores(cores, job.placement.processes->world())) {
    return why_cores_are_short(job.placement.own_devices(), cores);
  }
  std::vector<DeviceName> devices;
  for (const ProcessGroup::Member& member : job.placement.processes->members()) {
    if (member.host != job.placement.processes->world().host) continue;
    devices.insert(devices.end(), member.devices.begin(), member.devices.end());
  }
  return why_cores_are_short(devices, cores);
}

std::string next_steps_line(const RunFolder& folder, const RunState& state, const Json& summary) {
  const std::string path = folder.current_path();
  std::string line = "the weights are in " + folder.checkpoint(state.step);
  if (state.best) {
    const Json best = summary.value("best_val", Json());
    line = fmt::format(
        "best: {}, {} {:.4f}, in {}/best.safetensors",
        best.is_null() ? fmt::format("step {}", state.best_step)
                       : fmt::format("epoch {} of {}", best["epoch"].dump(), state.epoch),
        state.best_monitor.substr(0, state.best_monitor.find(' ')), *state.best, path);
  }
  return fmt::format("{}; next: {}, {}", line, shell_command({"dpt", "eval", path}),
                     shell_command({"dpt", "report", path}));
}

std::string stopped_line(const TrainOptions& options, const Job& job, const RunFolder& folder,
                         const RunState& start, const TrainOutcome& outcome) {
  const char* why = outcome.end == RunEnd::max_steps ? "--max-steps" : name_of(outcome.reason);
  if (outcome.state.step == 0 && outcome.state.epoch == 0) {
    return fmt::format("stopped before the end of the first step ({}): there was nothing to save",
                       why);
  }
  if (outcome.end == RunEnd::max_steps && outcome.state.step == start.step) {
    return fmt::format("the run already has {} (--max-steps {}): nothing was trained; {}",
                       counted(start.step, "step"), options.max_steps,
                       how_to_resume(options, job, folder, outcome.end));
  }
  return fmt::format("stopped at step {} ({}), checkpoint saved; {}", outcome.state.step, why,
                     how_to_resume(options, job, folder, outcome.end));
}

}  // namespace dpt
