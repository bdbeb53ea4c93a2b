// dpt train CONFIG: finds or makes the run folder, resumes or starts, trains, reports.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include <fmt/ranges.h>

#include "app/catalog.h"
#include "app/command_support.h"
#include "app/commands.h"
#include "engine/graph/executor.h"
#include "engine/spec/read_spec.h"
#include "engine/training/trainer.h"
#include "kernels/json_text.h"

namespace dpt {
namespace fs = std::filesystem;
namespace {

/// Fields that may change between the two halves of a run; paths and loader settings do not change
/// what is computed (the data's fingerprint is compared instead).
const std::vector<std::string>& changeable_fields() {
  static const std::vector<std::string> fields = {
      "train.epochs",       "log",       "checkpoint",   "devices",
      "device_weights",     "data.root", "data.workers", "data.prefetch",
      "train.stall_timeout"};
  return fields;
}

std::string read_text(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

/// What a shell would need to run this command again.
std::string command_line() {
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  std::string word, line;
  while (std::getline(in, word, '\0')) {
    const bool plain =
        !word.empty() &&
        word.find_first_not_of(
            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=:,+@%") ==
            std::string::npos;
    if (!plain) {
      std::string quoted = "'";
      for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
      word = quoted + "'";
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return line;
}

/// "conv1.*" matches every name that begins with "conv1."; without a star, only itself.
bool matches_any(const std::string& name, const std::vector<std::string>& patterns) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    if (!pattern.empty() && pattern.back() == '*') {
      return name.compare(0, pattern.size() - 1, pattern, 0, pattern.size() - 1) == 0;
    }
    return name == pattern;
  });
}

/// `--weights`: loads, prints what came of it, fails on surprises.
void apply_weights(const TrainOptions& options, const Job& job, StartingPoint& start,
                   Progress& progress) {
  const WeightsReport report = load_weights(options.weights, job.plan, start.params.data());
  progress.info(fmt::format("weights from {}: {} loaded, {} missing, {} left over", options.weights,
                            report.loaded.size(), report.missing.size(), report.left_over.size()));
  std::string surprises;
  const auto list = [&](const char* what, const std::vector<std::string>& names,
                        const std::vector<std::string>& expected) {
    for (const std::string& name : names) {
      const bool is_expected = matches_any(name, expected);
      progress.info(fmt::format("  {} {}{}", what, name, is_expected ? " (expected)" : ""));
      if (!is_expected) surprises += fmt::format("\n  {} {}", what, name);
    }
  };
  list("missing from the file:", report.missing, options.expect_missing);
  list("left over in the file:", report.left_over, options.expect_left_over);
  if (!surprises.empty()) {
    fail(ErrorKind::data,
         "--weights {} does not fit the model:{}\nIf that is what you want, name them with "
         "--expect-missing and --expect-left-over (a trailing * matches the rest)",
         options.weights, surprises);
  }
}

/// Refuses to go on with another config than the one that made the checkpoint.
void check_same_config(const std::string& checkpoint, const std::string& folder, const Job& job) {
  const CheckpointHeader header = read_checkpoint_header(checkpoint);
  const std::vector<std::string> changes =
      diff_specs(header.config, job.resolved_config, changeable_fields());
  if (!changes.empty()) {
    std::string lines;
    for (const std::string& change : changes) lines += "\n  " + change;
    fail(ErrorKind::usage,
         "{} was made with another config:{}\nOnly epochs, log, checkpoint, devices and "
         "device_weights may "
         "change in a resumed run. Put the values back, or start anew: --resume never (a new "
         "folder), "
         "--run-dir D, or --overwrite (removes {})",
         checkpoint, lines, folder);
  }
  const std::string fingerprint = job.splits.train.source->fingerprint();
  if (!header.dataset_fingerprint.empty() && header.dataset_fingerprint != fingerprint) {
    fail(ErrorKind::data,
         "{} was trained on other data (fingerprint {}; the data now has {}): put the data back, "
         "or start anew with --resume never",
         checkpoint, header.dataset_fingerprint, fingerprint);
  }
}

/// Throws what the run would throw later where the processor has not the arithmetic that the config
/// asks for. (GPUs have all there is.)
void check_precision(const Job& job) {
  if (job.plan.type == DType::f32 && !job.plan.tf32) return;
  // The kernels themselves know, and replicas of as many threads have the same ones: one sample's
  // worth of them is made and thrown away.
  std::set<int> threads;
  for (const DeviceName& device : job.devices) {
    if (device.kind != DeviceName::Kind::cpu || !threads.insert(device.threads).second) continue;
    const auto backend = make_backend(device, job.backend_options);
    Executor(*backend, job.plan, job.train_input, 0.0F, 1, true);
  }
}

/// Where the run goes on: the checkpoint to resume, or empty for a fresh start.
std::string find_checkpoint(const TrainOptions& options, const RunFolder& folder,
                            Progress& progress) {
  if (options.resume == "never") return {};
  if (options.resume != "auto" && options.resume != "must") {
    if (!fs::is_regular_file(options.resume)) {
      fail(ErrorKind::usage,
           "--resume {}: expected auto, never, must or a checkpoint file, and there is no such "
           "file",
           options.resume);
    }
    return options.resume;
  }
  const std::string found = newest_good_checkpoint(
      folder.checkpoints(), [&](const std::string& text) { progress.warn(text); });
  if (!found.empty()) return found;
  if (!list_checkpoints(folder.checkpoints()).empty()) {
    fail(ErrorKind::data,
         "{} has checkpoints, but none of them is good (see above). Start anew with --overwrite or "
         "--resume never",
         folder.checkpoints());
  }
  if (options.resume == "must") {
    fail(ErrorKind::data, "--resume must: {} has no checkpoint", folder.checkpoints());
  }
  return {};
}

std::string choose_folder(const TrainOptions& options, const TrainSpec& spec) {
  if (!options.run_dir.empty()) {
    if (options.resume == "never" && !options.overwrite && is_run_folder(options.run_dir)) {
      fail(ErrorKind::usage,
           "--resume never: {} already holds a run. Choose another --run-dir, or replace it with "
           "--overwrite",
           options.run_dir);
    }
    return options.run_dir;
  }
  if (options.resume == "never" && !options.overwrite) return free_run_folder(spec.name);
  return "runs/" + spec.name;
}

void write_env(const RunFolder& folder, const Job& job) {
  const CpuInfo cpu = cpu_info();
  Json env;
  env["version"] = version_text();
  env["made_by"] = made_by(job);
  env["cpu"] = {{"model", cpu.model},
                {"instruction_set", cpu.instruction_set},
                {"cores_allowed", cpu.logical_allowed}};
  for (const DeviceName& device : job.devices) env["devices"].push_back(device.text());
  write_file_atomically(folder.file("env.json"), json_text(env, 2) + "\n");
}

Json metrics_json(const EvalResult& result) {
  return {{"n", result.n}, {"loss", result.loss}, {"accuracy", result.accuracy}};
}

/// The results as summary.json keeps them; what `--require` reads.
Json summary_of(const Job& job, const RunFolder& folder, const TrainOutcome& outcome) {
  Json summary;
  summary["v"] = 1;
  summary["run"] = job.spec.name;
  summary["folder"] = folder.path();
  summary["status"] = outcome.status;
  summary["exit_code"] = exit_code_of(outcome.reason);
  summary["epochs"] = outcome.state.epoch;
  summary["steps"] = outcome.state.step;
  summary["seconds"] = outcome.seconds;
  summary["params"] = job.plan.param_count;
  for (const DeviceName& device : job.devices) summary["devices"].push_back(device.text());
  if (outcome.state.best) {
    summary["best"] = {{job.spec.checkpoint.keep_best.monitor, *outcome.state.best},
                       {"step", outcome.state.best_step}};
  }
  if (outcome.early_stopped) summary["early_stopped"] = true;
  if (outcome.state.epoch > 0) {
    summary["train"] = {{"loss", outcome.train_loss}, {"accuracy", outcome.train_accuracy}};
  }
  if (outcome.val) summary["val"] = metrics_json(*outcome.val);
  if (outcome.test) summary["test"] = metrics_json(*outcome.test);
  return summary;
}

/// Exit code after `--require`: 7 when one is not met.
int check_requirements(const std::vector<Requirement>& requirements, const Json& summary,
                       int exit_code) {
  for (const Requirement& requirement : requirements) {
    const auto split = summary.find(requirement.split);
    if (split == summary.end()) {
      fail(ErrorKind::requirement, "--require {}: this run has no {} result", requirement.text,
           requirement.split);
    }
    const double value = (*split)[requirement.metric].get<double>();
    if (!is_met(requirement, value)) {
      fail(ErrorKind::requirement, "--require {}: not met, it is {:.6g}", requirement.text, value);
    }
  }
  return exit_code;
}

void print_plan(const Job& job) {
  fmt::print("{}\n", summary_text(job.spec, job.plan, job.ranks(),
                                  static_cast<int>(job.optimizer.state_names.size())));
  fmt::print("train {} samples, val {}, test {}; {} steps an epoch, {} in all; {} replica(s): {}\n",
             job.splits.train.size(), job.splits.val.size(), job.splits.test.size(),
             job.steps_per_epoch, job.total_steps, job.ranks(), made_by(job));
}

}  // namespace

int run_train(const TrainOptions& options) {
  TrainLimits limits;  // its clock starts here: reading the data counts
  std::vector<Requirement> requirements;
  for (const std::string& text : options.requirements) {
    requirements.push_back(parse_requirement(text));
  }
  if (options.max_steps > 0) limits.max_steps = options.max_steps;
  if (!options.max_time.empty()) {
    limits.max_time = std::chrono::seconds(parse_duration(options.max_time));
  }
  const Job job = load_job(
      load_spec(catalog(), options.config, with_devices(options.overrides, options.devices)));
  for (const Requirement& requirement : requirements) {
    if (requirement.split != "train") split_by_name(job.splits, requirement.split);
  }
  check_precision(job);
  if (options.dry_run) {
    print_plan(job);
    return 0;
  }

  Progress progress;
  RunFolder folder(choose_folder(options, job.spec));
  if (options.overwrite) folder.wipe();
  progress.also_to(folder.file("train.log"));

  const std::string checkpoint = find_checkpoint(options, folder, progress);
  StartingPoint start;
  if (checkpoint.empty()) {
    start = fresh_start(job);
    if (!options.weights.empty()) apply_weights(options, job, start, progress);
  } else {
    check_same_config(checkpoint, folder.path(), job);
    if (!options.weights.empty()) {
      progress.warn(fmt::format("--weights {} is not used: the run resumes from {}",
                                options.weights, checkpoint));
    }
    start = start_from_checkpoint(job, checkpoint);
    const Json summary = Json::parse(read_text(folder.file("summary.json")), nullptr, false);
    if (!summary.is_discarded() && summary.value("status", "") == "ok" &&
        summary.value("steps", std::int64_t{-1}) == start.state.step) {
      const bool early = summary.value("early_stopped", false);
      if (early || start.state.epoch >= job.spec.train.epochs) {
        progress.info(
            fmt::format("{} is complete: {} epochs{}. {}, or start anew with --overwrite "
                        "or --resume never",
                        folder.path(), start.state.epoch, early ? ", stopped early" : "",
                        early ? "Change train.early_stopping in a new run"
                              : "To train on, raise train.epochs"));
        return check_requirements(requirements, summary, 0);
      }
    }
  }

  install_signal_handlers();
  write_file_atomically(folder.file("config.yaml"), job.resolved_config);
  write_file_atomically(folder.file("command.txt"), command_line() + "\n");
  write_env(folder, job);
  RunLog log(folder.file("metrics.jsonl"));
  std::vector<std::string> devices;
  for (const DeviceName& device : job.devices) devices.push_back(device.text());
  log.event("run_start",
            {{"run", job.spec.name},
             {"devices", devices},
             {"params", job.plan.param_count},
             {"train_samples", job.splits.train.size()},
             {"val_samples", job.splits.val.size()},
             {"test_samples", job.splits.test.size()},
             {"batch_size", job.spec.data.batch_size},
             {"steps_per_epoch", job.steps_per_epoch},
             {"epochs", job.spec.train.epochs},
             {"shards", job.spec.train.shards},
             {"device_weights",
              start.state.device_weights.empty() ? job.device_weights : start.state.device_weights},
             {"resumed_from", checkpoint},
             {"step", start.state.step}});
  progress.info(fmt::format("run folder {}", folder.path()));
  progress.info(fmt::format("{} parameters, {} training samples, batch {} on {} replica(s) ({})",
                            job.plan.param_count, job.splits.train.size(), job.spec.data.batch_size,
                            job.ranks(), fmt::join(devices, ", ")));
  if (!checkpoint.empty()) {
    progress.info(fmt::format("resuming {} at step {} (epoch {})", checkpoint, start.state.step,
                              start.state.epoch + 1));
  }
  if (job.plan.type == DType::bf16 &&
      std::any_of(job.devices.begin(), job.devices.end(),
                  [](const DeviceName& device) { return device.kind == DeviceName::Kind::cpu; })) {
    progress.warn(kBf16OnCpu);
  }
  if (job.splits.val.size() == 0) {
    progress.info("no validation samples (data.val_split is 0)");
  }

  TrainOutcome outcome;
  try {
    outcome = train(job, start, limits, folder, log, progress);
  } catch (const Error& error) {
    progress.clear();
    log.event("run_end", {{"status", "failed"},
                          {"exit_code", static_cast<int>(error.kind())},
                          {"reason", error.what()}});
    throw;
  }

  const Json summary = summary_of(job, folder, outcome);
  write_file_atomically(folder.file("summary.json"), json_text(summary, 2) + "\n");
  const int exit_code = exit_code_of(outcome.reason);
  Json end = {{"status", outcome.status}, {"exit_code", exit_code}};
  for (const char* key : {"best", "test"}) {
    if (summary.contains(key)) end[key] = summary[key];
  }
  log.event("run_end", end);

  if (outcome.status == "ok") {
    std::string line = fmt::format("done: {} epochs, {} steps in {}", outcome.state.epoch,
                                   outcome.state.step, format_duration(outcome.seconds));
    if (outcome.test) {
      line += fmt::format("; test accuracy {:.4f}, loss {:.4f}", outcome.test->accuracy,
                          outcome.test->loss);
    }
    progress.info(line);
    return check_requirements(requirements, summary, exit_code);
  }
  progress.info(fmt::format(
      "stopped at step {} ({}), checkpoint saved; the same command goes on", outcome.state.step,
      outcome.status == "max_steps" ? "--max-steps" : name_of(outcome.reason)));
  // A gate that was asked for is never passed unseen; a run that will go on is judged at its end.
  return outcome.status == "max_steps" ? check_requirements(requirements, summary, exit_code)
                                       : exit_code;
}

}  // namespace dpt
