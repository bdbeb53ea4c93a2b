#include "app/train_report.h"

#include <nlohmann/json.hpp>

#include "engine/spec/secrets.h"
#include "engine/training/process_devices.h"
#include "engine/training/process_group.h"
#include "engine/training/run_report.h"

namespace dpt {
namespace {

constexpr const char* kPlainCharacters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=:,+@%";

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
  summary["params"] = job.plan.param_count;
  summary["devices"] = job.device_names();
  if (outcome.state.best) {
    summary["best"] = {{job.spec.checkpoint.keep_best.monitor, *outcome.state.best},
                       {"step", outcome.state.best_step}};
    const double smoothing = job.spec.checkpoint.keep_best.smoothing;
    if (smoothing > 0) summary["best"]["smoothing"] = smoothing;
  }
  if (outcome.early_stopped) summary["early_stopped"] = true;
  const RunState& state = outcome.state;
  const bool has_accuracy = dpt::has_accuracy(job.loss.targets.kind);
  if (state.train_loss && (state.train_accuracy || !has_accuracy)) {
    summary["train"] = {{"loss", *state.train_loss}};
    if (has_accuracy) summary["train"]["accuracy"] = *state.train_accuracy;
    add_values(summary["train"], state.train_metrics);
  }
  if (state.val_loss && (state.val_accuracy || !has_accuracy)) {
    summary["val"] = {{"n", state.val_n}, {"loss", *state.val_loss}};
    if (has_accuracy) summary["val"]["accuracy"] = *state.val_accuracy;
    add_values(summary["val"], state.val_metrics);
  }
  if (outcome.test) {
    summary["test"] = {{"n", outcome.test->n}, {"loss", outcome.test->loss}};
    add_values(summary["test"], *outcome.test);
  }
  if (outcome.ledger.sum() > 0) summary["ledger"] = ledger_json(outcome.ledger, job);
  return summary;
}

std::string shell_command(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : without_secrets(words)) {
    if (!line.empty()) line += ' ';
    if (!word.empty() && word.find_first_not_of(kPlainCharacters) == std::string::npos) {
      line += word;
      continue;
    }
    line += "'";
    for (const char c : word) line += c == '\'' ? std::string("'\\''") : std::string(1, c);
    line += "'";
  }
  return line;
}

std::string resume_command(const TrainOptions& options, const std::string& checkpoint) {
  std::vector<std::string> words = words_to_resume(options, false, false);
  words.insert(words.end(), {"--resume", checkpoint});
  return shell_command(words);
}

std::string how_to_go_on(const TrainOptions& options, const Job& job, const RunFolder& folder,
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
  if (!job.processes || has_own_cores(cores, job.processes->world())) {
    return why_cores_are_short(job.own_devices(), cores);
  }
  std::vector<DeviceName> devices;
  for (const ProcessGroup::Member& member : job.processes->members()) {
    if (member.host != job.processes->world().host) continue;
    devices.insert(devices.end(), member.devices.begin(), member.devices.end());
  }
  return why_cores_are_short(devices, cores);
}

std::string stopped_line(const TrainOptions& options, const Job& job, const RunFolder& folder,
                         const RunState& start, const TrainOutcome& outcome) {
  const char* why = outcome.end == RunEnd::max_steps ? "--max-steps" : name_of(outcome.reason);
  if (outcome.state.step == 0 && outcome.state.epoch == 0) {
    return fmt::format("stopped before the end of the first step ({}): there was nothing to save",
                       why);
  }
  if (outcome.end == RunEnd::max_steps && outcome.state.step == start.step) {
    return fmt::format("the run has {} steps already (--max-steps {}): nothing was trained; {}",
                       start.step, options.max_steps,
                       how_to_go_on(options, job, folder, outcome.end));
  }
  return fmt::format("stopped at step {} ({}), checkpoint saved; {}", outcome.state.step, why,
                     how_to_go_on(options, job, folder, outcome.end));
}

}  // namespace dpt
