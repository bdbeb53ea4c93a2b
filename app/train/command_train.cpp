// dpt train CONFIG: finds or creates the run folder, resumes or starts, trains, reports.
#include "app/train/command_train.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include <fmt/ranges.h>

#include "app/base/catalog.h"
#include "app/base/command_support.h"
#include "app/base/world_run.h"
#include "app/gate/gate.h"
#include "app/train/command_smoke.h"
#include "app/train/hyperparameters.h"
#include "app/train/misfits.h"
#include "app/train/replaced_run_messages.h"
#include "app/train/start_phase.h"
#include "app/train/start_weights.h"
#include "app/train/train_announcement.h"
#include "app/train/train_overfit.h"
#include "app/train/train_prometheus.h"
#include "app/train/train_report.h"
#include "app/train/train_start.h"
#include "engine/config/paths.h"
#include "engine/config/read_spec.h"
#include "engine/graph/executor.h"
#include "engine/graph/summary.h"
#include "engine/job/best.h"
#include "engine/job/job_facts.h"
#include "engine/job/resume_checks.h"
#include "engine/job/starting_point.h"
#include "engine/job/statistics_checks.h"
#include "engine/processes/control_types.h"
#include "engine/processes/detect_world.h"
#include "engine/processes/process_devices.h"
#include "engine/processes/world.h"
#include "engine/replica/measurements.h"
#include "engine/run/lineage.h"
#include "engine/run/progress.h"
#include "engine/run/run_files.h"
#include "engine/run/run_folder.h"
#include "engine/run/run_log.h"
#include "engine/run/tensorboard.h"
#include "engine/training/trainer.h"
#include "kernels/base/held_path.h"
#include "kernels/base/json_text.h"
#include "kernels/base/stop_request.h"
#include "kernels/base/text.h"
#include "kernels/devices.h"

namespace dpt {
namespace {

void refuse(const std::string& problem) {
  if (!problem.empty()) throw Error(ErrorKind::usage, problem);
}

/// Throws now, rather than later in the run, if the processor lacks the arithmetic that the config
/// needs. (All GPUs have it.)
void check_precision(const Job& job) {
  if (job.model.plan.type == DType::f32 && !job.model.plan.tf32) return;
  // Creating the kernels, for one sample, throws if the processor lacks the arithmetic. Replicas
  // with the same number of threads have the same kernels.
  std::set<int> threads;
  for (const DeviceName& device : job.placement.devices) {
    if (!device.traits().arithmetic_varies || !threads.insert(device.threads).second) continue;
    const auto backend = make_backend(device, job.placement.backend_options);
    Executor(*backend, job.model.plan, job.data.train_input, job.model.loss, 1, true);
  }
}

/// Writes a file unless it already has this content, so that resuming needs no disk space for it.
void write_if_changed(const HeldPath& path, const std::string& text) {
  try {
    if (read_whole_file(path) == text) return;
  } catch (const Error&) {
    // The file is missing or unreadable: write it.
  }
  write_file_atomically(path, text);
}

void write_env(const RunFolder& folder, const Job& job) {
  const CpuInfo cpu = cpu_info();
  Json env;
  env["version"] = version_text();
  env["made_by"] = made_by(job);
  env["cpu"] = {{"model", cpu.model},
                {"instruction_set", cpu.instruction_set},
                {"cores_allowed", cpu.logical_allowed}};
  env["devices"] = job.placement.device_names();
  write_if_changed(folder.at("env.json"), json_text(env, 2) + "\n");
}

void print_plan(const Job& job) {
  const std::int64_t limit = *std::max_element(job.placement.max_micro_batches.begin(),
                                               job.placement.max_micro_batches.end());
  fmt::print(
      "{}{}\n",
      summary_text(job.spec, job.model.plan, job.placement.ranks(),
                   static_cast<int>(job.update.states.size()),
                   step_size(job.spec, job.placement.ranks(), job.data.splits.train.size(), limit)),
      groups_text(job.update.plan));
  fmt::print("train {} samples, val {}, test {}; {} per epoch, {} in total; {}: {}\n",
             job.data.splits.train.size(), job.data.splits.val.size(), job.data.splits.test.size(),
             counted(job.data.steps_per_epoch, "step"), job.update.total_steps,
             counted(job.placement.ranks(), "replica"), made_by(job));
}

/// Returns a warning if this process's replicas on the CPU need more memory than the machine has,
/// else an empty string. Memory that other programs use counts as available, because it may be free
/// when the run starts.
std::string memory_misfit(const Job& job) {
  std::uint64_t replicas = 0;
  // In fast mode, micro-batches shrink if memory is short; in exact mode, they must not.
  std::int64_t limit = 1;
  for (std::int64_t rank = job.placement.own_ranks.begin; rank < job.placement.own_ranks.end;
       ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    if (job.placement.devices[at].kind != DeviceName::Kind::cpu) continue;
    ++replicas;
    if (job.spec.train.shards > 0) limit = std::max(limit, job.placement.max_micro_batches[at]);
  }
  const StepSize step =
      step_size(job.spec, job.placement.ranks(), job.data.splits.train.size(), limit);
  const auto each = static_cast<std::uint64_t>(
      step_bytes(job.spec, job.model.plan, step, static_cast<int>(job.update.states.size())));
  const std::uint64_t memory = cpu_info().memory_bytes;
  if (replicas * each <= memory) return {};
  return fmt::format(
      "training will probably run out of memory: {} on the CPU {}, and this process may use {}; "
      "use a smaller network, batch or images, or fewer replicas",
      counted(replicas, "replica"),
      replicas == 1 ? fmt::format("needs {}", mebibytes(each))
                    : fmt::format("need {} each", mebibytes(each)),
      mebibytes(memory));
}

TrainLimits limits_of(const TrainOptions& options, std::chrono::steady_clock::time_point begun) {
  TrainLimits limits;
  limits.begun = begun;
  if (options.max_steps > 0) limits.max_steps = options.max_steps;
  if (!options.max_time.empty()) {
    limits.max_time = std::chrono::seconds(duration_of("--max-time", options.max_time));
  }
  return limits;
}

/// Returns true if best.safetensors is the run's best checkpoint according to the current monitor,
/// or if the run has no best yet.
bool has_its_best(const Job& job, const RunFolder& folder, const RunState& state) {
  return !state.best || (state.best_monitor == best_monitor_of(job.spec) &&
                         why_not_best(folder.best_place(), state).empty());
}

/// Returns the results of the run if it is complete and has written all of them; otherwise null.
Json results_of_complete(const Job& job, const RunFolder& folder, const TrainStart& start) {
  const RunState& state = start.point.state;
  if (!has_its_best(job, folder, state)) return {};
  if (start.checkpoint.empty() ||
      (state.epoch < job.spec.train.epochs && !has_stopped_early(job.spec, state))) {
    return {};
  }
  std::error_code ignored;
  // The summary does not describe a checkpoint of another run or of an abandoned branch.
  const std::string from = folder_of(start.checkpoint);
  if (!std::filesystem::equivalent(from, folder.checkpoints(), ignored) &&
      !std::filesystem::equivalent(from, folder.path(), ignored)) {
    return {};
  }
  const std::string path = folder.file("summary.json");
  if (!std::filesystem::exists(path, ignored)) return {};
  Json summary = Json::parse(read_whole_file(path), nullptr, false);
  const bool is_its_own = summary.is_object() && summary.contains("status") &&
                          summary["status"] == "ok" && summary.contains("steps") &&
                          summary["steps"] == state.step;
  return is_its_own ? summary : Json();
}

/// Returns a message for a run that has trained more epochs than the config asks for, else an empty
/// string.
std::string fewer_epochs_text(const Job& job, const RunState& state) {
  if (state.epoch <= job.spec.train.epochs) return {};
  return fmt::format(
      "already trained {}, but the config asks for {}: nothing to train. Raise train.epochs to "
      "continue training, or start a new run with --overwrite or --resume never",
      counted(state.epoch, "epoch"), job.spec.train.epochs);
}

std::string complete_line(const Job& job, const RunFolder& folder, const RunState& state) {
  const bool early = state.epoch < job.spec.train.epochs;
  if (const std::string fewer = fewer_epochs_text(job, state); !fewer.empty()) {
    return fmt::format("{}: {}", folder.path(), fewer);
  }
  return fmt::format(
      "{} is complete: {}{}. {}, or start a new run with --overwrite or --resume never",
      folder.path(), counted(state.epoch, "epoch"), early ? ", stopped early" : "",
      early ? "Raise train.early_stopping.patience to continue training"
            : "Raise train.epochs to continue training");
}

/// Updates the path of the run folder in the results and in summary.json if the run was moved.
void note_new_place(const RunFolder& folder, Json& results, Progress& progress) {
  const bool has_place = results.contains("folder") && results["folder"].is_string();
  if (has_place && is_same_entry(results["folder"].get<std::string>(), folder.place())) return;
  results["folder"] = folder.path();
  try {
    write_file_atomically(folder.at("summary.json"), json_text(results, 2) + "\n");
  } catch (const Error& error) {
    progress.warn(error.what());
  }
}

/// Writes the files that describe the run before it starts, and removes the summary.json of an
/// earlier process of the run.
void describe_run(const TrainOptions& options, const Job& job, const RunFolder& folder,
                  Progress& progress) {
  write_if_changed(folder.at("config.yaml"), job.resolved_config);
  write_if_changed(folder.at("command.txt"), shell_command(options.command) + "\n");
  write_env(folder, job);
  try {
    remove_durably(folder.at("summary.json"));
  } catch (const Error& error) {
    progress.warn(error.what());
  }
}

/// Trains, and writes the results to summary.json and the log.
TrainOutcome train_and_record(const Job& job, const StartingPoint& start, const TrainLimits& limits,
                              RunFolder& folder, RunLog& log, Progress& progress, Json& summary) {
  try {
    TrainOutcome outcome = train(job, start, limits, folder, log, progress);
    summary = summary_of(job, folder, outcome);
    if (const std::string moved = folder.check_held(); !moved.empty()) progress.warn(moved);
    write_file_atomically(folder.at("summary.json"), json_text(summary, 2) + "\n");
    Json end = {{"status", name_of(outcome.end)}, {"exit_code", exit_code_of(outcome.reason)}};
    for (const char* key : {"best", "test"}) {
      if (summary.contains(key)) end[key] = summary[key];
    }
    log.event("run_end", end);
    return outcome;
  } catch (const StopRequested&) {
    log.event("run_end", {{"status", name_of(RunEnd::stopped)},
                          {"exit_code", exit_code_of(requested_stop())}});
    throw;
  } catch (const Error& error) {
    progress.clear();
    if (is_held(folder)) {
      log.event("run_end", {{"status", "failed"},
                            {"exit_code", static_cast<int>(error.kind())},
                            {"reason", error.what()}});
    }
    throw;
  }
}

/// Returns the results to which conditions apply.
RunResults results_of_run(const Json& summary, const RunFolder& folder) {
  return results_of_summary(summary, folder.file("metrics.jsonl"));
}

std::string done_line(const TrainOutcome& outcome) {
  std::string line =
      fmt::format("done: {}, {} in {}", counted(outcome.state.epoch, "epoch"),
                  counted(outcome.state.step, "step"), format_duration(outcome.seconds));
  if (outcome.test) {
    line += "; test ";
    if (outcome.test->accuracy) line += fmt::format("accuracy {:.4f}, ", *outcome.test->accuracy);
    line += fmt::format("loss {:.4f}", outcome.test->loss);
    for (const auto& [name, value] : outcome.test->metrics) {
      line += fmt::format(", {} {:.4f}", name, value);
    }
    if (outcome.test->unreadable > 0) {
      line += fmt::format(" ({} unreadable)", outcome.test->unreadable);
    }
  }
  return line;
}

/// Gives the job of a resumed run the device weights and the schedule of the checkpoint. Prints how
/// the learning rate continues if train.epochs was raised.
void continue_run(const TrainStart& start, Job& job, Progress& progress) {
  if (start.checkpoint.empty()) return;
  adopt_device_weights(start.point.state, job);
  const TrainSpec before = load_stored_spec(catalog(), start.point.config, start.checkpoint);
  const std::string text = continue_schedule(job, before, start.point.state);
  if (!text.empty()) progress.info(text);
}

/// Decision to train, which process 0 sends to the others.
constexpr const char* kContinue = "continue";

void tell_others(const Job& job, const std::string& decision, const std::string& folder) {
  if (job.placement.processes) {
    job.placement.processes->share("decision to train", decision + "\n" + folder);
  }
}

/// Makes `progress` write to `file` too, unless the file exists and is not a dpt log.
void write_rank_log(const std::string& file, Progress& progress) {
  std::error_code ignored;
  const bool has_text = std::filesystem::file_size(file, ignored) > 0 && !ignored;
  if (has_text && !is_message_log(file)) {
    progress.warn_always(
        fmt::format("{}: expected a dpt log, found a different file: it is kept, and this "
                    "process writes no log. Move the file away, or leave out --rank-logs",
                    file));
    return;
  }
  progress.also_to(file);
}

/// Trains in a process other than the first of several. Such a process writes nothing except, on
/// request, its own log.
int train_beside(const TrainOptions& options, Job job, const TrainLimits& limits,
                 StartPhase& phase) {
  const std::string told = job.placement.processes->share("decision to train", {});
  const std::size_t end = told.find('\n');
  if (told.substr(0, end) != kContinue) return 0;
  Progress progress(true);
  if (options.processes.rank_logs) {
    const std::string logs = told.substr(end + 1) + "/logs";
    make_folders(logs);
    write_rank_log(fmt::format("{}/rank-{}.log", logs, job.placement.processes->world().rank),
                   progress);
    progress.info(describe(job.placement.processes->world()));
  }
  TrainStart start;
  start.point = share_start(job, {});
  // The name is for messages only: rank 0 has read the file.
  if (!start.point.config.empty()) start.checkpoint = "the checkpoint of rank 0";
  continue_run(start, job, progress);
  phase.begin_changes();
  RunFolder none;
  RunLog no_log;
  try {
    const TrainOutcome outcome = train(job, start.point, limits, none, no_log, progress);
    progress.info(outcome.end == RunEnd::complete
                      ? done_line(outcome)
                      : fmt::format("stopped at step {}", outcome.state.step));
    return exit_code_of(outcome.reason);
  } catch (const Error& error) {
    progress.warn(error.what());
    throw;
  }
}

/// Checks everything that a run would need, and prints what it would do.
int dry_run(const TrainOptions& options, Job& job, const std::string& folder) {
  check_may_write(folder);
  Progress progress;
  try_samples({job.data.splits.train.source.get(),
               job.data.splits.has_own_val ? job.data.splits.val.source.get() : nullptr,
               job.data.splits.test.source.get()},
              job.spec.data.on_bad_sample);
  const TrainStart start = load_start(options, job, folder_of_run(folder), progress);
  continue_run(start, job, progress);
  for (const std::string& text : misfits_of(job, start)) progress.warn(text);
  print_plan(job);
  if (const std::string text = memory_misfit(job); !text.empty()) progress.warn(text);
  const std::int64_t done = start.point.state.step;
  if (done >= job.update.total_steps && done > 0) {
    progress.info(fmt::format("nothing is left to train: all {} steps are done", done));
  } else if (done > 0) {
    progress.info(
        fmt::format("the run would resume at step {} of {}", done, job.update.total_steps));
  }
  tell_others(job, "dry run", folder);
  return 0;
}

/// Reports how the run ended, and checks the conditions of the gate.
void conclude(const TrainOptions& options, const Job& job, const RunFolder& folder,
              const RunState& start, const TrainOutcome& outcome, const Json& summary, Gate& gate,
              Progress& progress) {
  if (outcome.end == RunEnd::complete) {
    progress.info(done_line(outcome));
  } else {
    progress.info(stopped_line(options, job, folder, start, outcome));
    if (folder.has_replaced()) progress.info(replaced_text(folder));
  }
  if (const std::string text = ledger_text(outcome.ledger, job); !text.empty()) progress.info(text);
  if (outcome.end == RunEnd::complete) {
    progress.info(next_steps_line(folder, outcome.state, summary));
  }
  // A stopped run will be resumed, and is checked at its end.
  if (outcome.end != RunEnd::stopped) {
    gate.judge(results_of_run(summary, folder), folder.path());
  } else {
    gate.leave_unchecked(
        fmt::format("The run was stopped at step {} ({}): requirements are checked at its end.",
                    outcome.state.step, name_of(outcome.reason)));
  }
}

/// Reports and judges the results of a run that is complete. Returns false for any other run.
bool conclude_complete(const Job& job, const RunFolder& folder, const TrainStart& start, Gate& gate,
                       Progress& progress) {
  Json results = results_of_complete(job, folder, start);
  if (results.is_null()) return false;
  progress.info(complete_line(job, folder, start.point.state));
  note_new_place(folder, results, progress);
  tell_others(job, "complete", folder.path());
  gate.judge(results_of_run(results, folder), folder.path());
  return true;
}

/// Throws if the new run starts from a file of the unfinished run that --overwrite is about to
/// remove. Otherwise, reports the removal.
void begin_overwrite(const RunFolder& folder, const TrainStart& start, Progress& progress) {
  folder.check_stays(start.checkpoint);
  if (!folder.has_replaced()) return;
  progress.info(fmt::format("the unfinished run in {} is removed; the run before it stays in {}",
                            folder.path(), folder.file("replaced")));
}

/// Returns the options for command.txt and for commands in messages: the run's config.yaml replaces
/// a config from a stream, which cannot be read again.
TrainOptions with_lasting_config(TrainOptions options, const RunFolder& folder) {
  if (!is_stream(options.config)) return options;
  const auto word = std::find(options.command.begin(), options.command.end(), options.config);
  if (word != options.command.end()) *word = folder.file("config.yaml");
  return options;
}

int train_in_folder(const TrainOptions& given, const TrainLimits& limits, Job job,
                    const std::string& folder_path, Gate& gate, StartPhase& phase) {
  // Read and check everything before changing anything in the folder.
  RunFolder folder = open_folder(given, job.spec, folder_path);
  UnstartedFolder unstarted(folder);
  const TrainOptions options = with_lasting_config(given, folder);
  Progress progress;
  if (folder.restored()) progress.info(restored_text(folder));
  if (options.overwrite) {
    folder.check_only_ours();
  } else {
    progress.also_to(folder.at("train.log"));
    if (folder.has_replaced()) progress.info(replaced_text(folder));
  }
  TrainStart start = load_start(options, job, folder.path(), progress);
  store_hash_of_weights(start, job);
  continue_run(start, job, progress);
  if (!options.overwrite && conclude_complete(job, folder, start, gate, progress)) return 0;

  if (const std::string text = fewer_epochs_text(job, start.point.state); !text.empty()) {
    progress.info(text);
  }
  check_stop();
  const std::string& textfile = job.spec.log.prometheus;
  const FileHandle held = textfile.empty() ? FileHandle() : lock_prometheus_file(textfile);
  if (options.overwrite) begin_overwrite(folder, start, progress);
  phase.begin_changes();
  const Replacement replacement(folder, progress);
  take_place(job, folder, start.checkpoint, options.overwrite, start.point,
             [&](const std::string& text) { progress.info(text); });
  if (options.overwrite) progress.also_to(folder.at("train.log"));
  describe_run(options, job, folder, progress);
  RunLog log(folder.at("metrics.jsonl"), [&](const std::string& text) { progress.warn(text); });
  unstarted.keep();
  TensorBoardLog tensorboard(
      folder.place(), [&](const std::string& text) { progress.warn(text); },
      hyperparameters_of(job.spec));
  if (job.spec.log.tensorboard) {
    log.follow([&](const char* name, const Json& fields) { tensorboard.event(name, fields); });
  }
  std::optional<PrometheusFile> prometheus;
  if (!textfile.empty()) {
    prometheus.emplace(textfile, prometheus_state(job, folder, start.point.state),
                       [&](const std::string& text) { progress.warn(text); });
    prometheus->follow(log);
  }
  return reporting_end(prometheus, job, [&] {
    announce_processes(job, log, progress);
    announce(job, folder, start, log, progress);
    tell_others(job, kContinue, folder.path());
    share_start(job, [&] { return start.point; });
    Json summary;
    const TrainOutcome outcome =
        train_and_record(job, start.point, limits, folder, log, progress, summary);
    conclude(options, job, folder, start.point.state, outcome, summary, gate, progress);
    return exit_code_of(outcome.reason);
  });
}

int train_in_world(const TrainOptions& options, const TrainLimits& limits, ProcessGroup* processes,
                   Gate& gate, StartPhase& phase) {
  check_options(options);
  TrainSpec spec = load_train_spec(options, processes);
  check_name(options, spec);
  if (!processes || processes->is_first()) check_prometheus(spec);
  replace_weights_file(options.weights, spec);
  // Resolve `pretrained` now: a run stores the network's layers, not its name.
  if (spec.weights) resolve_pretrained(spec.model, *spec.weights);
  Job job =
      load_job(std::move(spec), processes, options.dry_run ? UsedFiles::none : UsedFiles::all);
  compare_and_connect(job, {{"--max-steps", std::to_string(options.max_steps)},
                            {"--overfit", std::to_string(options.overfit)},
                            {"--resume", options.resume},
                            {"--overwrite", options.overwrite ? "given" : "not given"},
                            {"--dry-run", options.dry_run ? "given" : "not given"}});
  for (const Condition& condition : gate.conditions()) {
    if (condition.split() != "train") split_by_name(job, condition.split());
  }
  check_metrics_of(gate.conditions(), job.model.metrics);
  check_kinds_of_gpus(job);
  refuse(problem_of_statistics(job));
  check_precision(job);
  if (options.overfit > 0) return run_overfit(options, job, phase);
  refuse(problem_of_measurements(job));
  if (!job.placement.writes()) return train_beside(options, std::move(job), limits, phase);
  const std::string folder = choose_folder(options, job.spec);
  check_keeps_config(options, folder);
  return options.dry_run ? dry_run(options, job, folder)
                         : train_in_folder(options, limits, std::move(job), folder, gate, phase);
}

}  // namespace

int run_train(const TrainOptions& options) {
  if (options.smoke) return run_smoke(options);
  const auto begun = std::chrono::steady_clock::now();
  const World world = detect_world(options.processes.flags);
  if (!options.dry_run) require_started_tasks(world);
  StartPhase phase(world.rank == 0);
  return phase.guard([&] {
    const RunIdentity run = identity_of("train", options.config, options.overrides);
    return run_in_world(options.processes, run, [&](ProcessGroup* processes) {
      const TrainLimits limits = limits_of(options, begun);
      const StartPhase::InWorld told(phase, processes);
      Gate gate(options.gate, "train", options.config, !processes || processes->is_first(),
                !options.dry_run);
      return gate.guard([&] { return train_in_world(options, limits, processes, gate, phase); });
    });
  });
}

}  // namespace dpt
