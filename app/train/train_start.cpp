#include "app/train/train_start.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <sstream>

#include <fmt/ranges.h>

#include "app/base/catalog.h"
#include "app/base/command_support.h"
#include "app/base/training_statistics.h"
#include "app/evaluate/model_changes.h"
#include "app/train/resume_choice.h"
#include "app/train/start_weights.h"
#include "app/train/train_options.h"
#include "datasets/class_table.h"
#include "engine/checkpoints/checkpoint.h"
#include "engine/checkpoints/state_checks.h"
#include "engine/config/paths.h"
#include "engine/config/read_spec.h"
#include "engine/config/scalars.h"
#include "engine/config/show_spec.h"
#include "engine/config/sources.h"
#include "engine/config/stored_spec.h"
#include "engine/data/transforms.h"
#include "engine/job/best.h"
#include "engine/job/starting_point.h"
#include "engine/run/run_files.h"
#include "kernels/base/file_io.h"

namespace dpt {
namespace fs = std::filesystem;
namespace {

/// Returns the remedy if `changes` of the config prevent resuming the run.
std::string remedy_for(const std::vector<std::string>& changes, const TrainOptions& options,
                       const std::string& folder) {
  const bool has_name = std::any_of(changes.begin(), changes.end(), [](const std::string& change) {
    return change.starts_with("name:");
  });
  std::string text = "Restore the values";
  if (has_name) text += " (to choose the folder, give --run-dir DIR instead of another name)";
  if (options.overwrite) {
    return text + ", or leave out --resume: --overwrite alone starts a new run in " + folder;
  }
  return text + ", or start a new run: " +
         (options.run_dir.empty() ? "--resume never (in a new folder), --run-dir DIR, or "
                                  : "another --run-dir, or ") +
         "--overwrite (replaces the run in " + folder + ")";
}

/// Throws if the config differs from the checkpoint's in a field that a resumed run may not change.
void check_same_config(const std::string& checkpoint, const CheckpointHeader& header,
                       const TrainOptions& options, const std::string& folder, const Job& job) {
  const std::vector<std::string> changes =
      refused_changes(catalog(), header.config, checkpoint, job.resolved_config);
  if (!changes.empty()) {
    fail(ErrorKind::usage,
         "{} was saved with another config:\n  {}\nA resumed run may change only {}. {}",
         checkpoint, list_of_changes(changes, "\n  "),
         fmt::join(changeable_fields(catalog()), ", "), remedy_for(changes, options, folder));
  }
}

/// Throws if the data is not the run's, unless this is allowed and the new samples can replace the
/// run's. This requires the same number of samples, because it determines the order of an epoch,
/// and the same classes, because labels are indices of classes. Returns the difference that was
/// allowed.
std::string check_same_data(const std::string& checkpoint, const CheckpointHeader& header,
                            const Job& job, bool is_allowed) {
  const std::string classes =
      difference_of_classes(header.classes, job.data.splits.train.source->classes());
  if (!classes.empty()) {
    fail(ErrorKind::data,
         "{}: the data's classes are not those of the checkpoint: {}. Restore the data, or start a "
         "new run with --resume never",
         checkpoint, classes);
  }
  std::string difference =
      difference_of_data("training", header.dataset_fingerprint, *job.data.splits.train.source);
  const bool is_same_training = difference.empty();
  if (is_same_training) {
    difference = difference_of_validation(header.val_fingerprint, job.data.splits);
  }
  if (difference.empty() && job.data.splits.test.size() > 0) {
    difference = difference_of_data("test", header.test_fingerprint, *job.data.splits.test.source);
  }
  if (difference.empty()) return {};
  const std::int64_t samples = job.data.splits.train.size();
  if (!is_same_training && header.train_samples != 0 && header.train_samples != samples) {
    fail(ErrorKind::data,
         "{}: {}; the run trains on {} samples, this data has {} to train on. Restore the data, or "
         "start a new run: --resume never{}",
         checkpoint, difference, header.train_samples, samples,
         is_allowed ? " (--allow-other-data needs as many samples as before)" : "");
  }
  if (!is_allowed) {
    fail(ErrorKind::data,
         "{}: {}. Restore the data, resume on this data with --allow-other-data (after a file was "
         "repaired, for example), or start a new run with --resume never",
         checkpoint, difference);
  }
  return difference;
}

/// Warns that a resumed run reads no initial weights. The warning is for --weights (`argument`),
/// and for a config whose weights file is not the one with which the run began.
void warn_of_other_weights(const std::string& argument, const TrainSpec& spec,
                           const TrainStart& start, Progress& progress) {
  std::string began;
  if (spec.weights) {
    const TrainSpec before = load_stored_spec(catalog(), start.point.config, start.checkpoint);
    if (before.weights && before.weights->file != spec.weights->file) {
      began = "; it began with " + before.weights->file;
    }
  }
  if (argument.empty() && began.empty()) return;
  progress.warn(
      fmt::format("{} is ignored: the run resumes from {}{}",
                  argument.empty() ? "weights.file " + spec.weights->file : "--weights " + argument,
                  start.checkpoint, began));
}

/// Throws for a model that could be trained but not read back from a checkpoint.
void check_can_be_saved(const Job& job) {
  check_tensor_names(job.model.plan, job.update.state_names());
  try {
    load_stored_spec(catalog(), job.resolved_config, "the config with all defaults");
  } catch (const Error& error) {
    fail(ErrorKind::usage, "a checkpoint of this run could not be resumed: {}", error.what());
  }
}

/// Sets the name of the monitor from the config. Checkpoints before version 1.2 lack it.
void name_monitors(const std::string& path, StartingPoint& start) {
  RunState& state = start.state;
  if (!state.best || !state.best_monitor.empty()) return;
  const TrainSpec spec = load_stored_spec(catalog(), start.config, path);
  state.best_monitor = best_monitor_of(spec);
}

/// Returns the folder of the run that wrote the config; empty for a user's config.
std::string run_of_config(const std::string& config) {
  const fs::path path = fs::path(config).lexically_normal();
  const std::string folder = path.has_parent_path() ? path.parent_path().string() : ".";
  const bool is_own =
      path.filename() == "config.yaml" && is_run_folder(folder) && has_log_of_dpt(folder);
  return is_own ? folder : std::string();
}

/// Returns the folder of the run to resume; empty for a new run.
std::string resumed_run(const TrainOptions& options, const TrainSpec& spec) {
  const bool is_named = options.resume != "auto" && options.resume != "must";
  if (options.resume == "never" || (options.overwrite && !is_named)) return {};
  std::error_code ignored;
  std::string folder = choose_folder(options, spec);
  if (is_named && fs::exists(options.resume, ignored)) {
    // --resume may name a run, one of its files, or a file in checkpoints/ or
    // checkpoints/abandoned-N.
    fs::path place = options.resume;
    for (int up = 0; up < 3 && !is_run_folder(place.string()); ++up) place = place.parent_path();
    folder = place.string();
  }
  folder = folder_of_run(folder);
  return is_run_folder(folder) ? folder : std::string();
}

/// Returns the numbers of data.normalize from the checkpoint `file`. Throws if it cannot be read.
NormalizeSpec numbers_in(const std::string& file) {
  const std::string config = read_checkpoint_header(file).config;
  return load_stored_spec(catalog(), config, file).data.normalize;
}

/// Returns the resumed run's numbers for data.normalize: auto, as an override. Returns nothing if
/// `spec` does not request them or the run has no checkpoint. All checkpoints of a run have the
/// same numbers.
std::vector<std::string> numbers_of_resumed_run(const TrainOptions& options, const TrainSpec& spec,
                                                const std::string& run) {
  if (!spec.data.normalize.is_pending()) return {};
  std::vector<std::string> files;
  std::error_code ignored;
  const bool is_named = options.resume != "auto" && options.resume != "must";
  if (is_named && fs::is_regular_file(options.resume, ignored)) {
    files = {options.resume};
  } else if (!run.empty()) {
    files = list_checkpoints(run + "/checkpoints");
  }
  for (const std::string& file : files) {
    try {
      const NormalizeSpec normalize = numbers_in(file);
      if (!normalize.has_numbers()) return {};
      return {fmt::format("data.normalize={{mode: {}, {}}}", name_of(normalize.mode),
                          text_of(normalize))};
    } catch (const Error&) {
      // Skip a damaged file, as a resume does.
    }
  }
  return {};
}

/// Returns, as overrides, the resumed run's values of fields that `spec` leaves to the run. Returns
/// nothing for a new run.
std::vector<std::string> values_of_resumed_run(const TrainOptions& options, const TrainSpec& spec) {
  const std::string folder = resumed_run(options, spec);
  std::vector<std::string> values = numbers_of_resumed_run(options, spec, folder);
  const std::string file = folder + "/config.yaml";
  std::error_code ignored;
  if (folder.empty() || !fs::is_regular_file(file, ignored)) return values;
  try {
    for (std::string& value : values_of_run(catalog(), spec, read_whole_file(file), file)) {
      values.push_back(std::move(value));
    }
  } catch (const Error&) {
    // Ignore an unreadable config.yaml: the config is compared with the checkpoint's later.
  }
  return values;
}

}  // namespace

void check_options(const TrainOptions& options) {
  if (options.overwrite && options.resume == "must") {
    fail(ErrorKind::usage,
         "--overwrite contradicts '--resume must': one starts a new run, the other requires an "
         "existing one. Give only one of them; nothing was changed");
  }
}

void check_name(const TrainOptions& options, const TrainSpec& spec) {
  if (!is_stream(options.config) || spec.origins.contains("name")) return;
  fail(ErrorKind::usage,
       "{}: expected a name for the run, since the config is not a file: write name: NAME in it, "
       "or give name=NAME on the command line",
       options.config);
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
  const std::string own = run_of_config(options.config);
  return own.empty() ? "runs/" + spec.name : own;
}

TrainSpec load_train_spec(const TrainOptions& options, ProcessGroup* processes) {
  std::vector<std::string> overrides = with_devices(options.overrides, options.devices);
  const auto is_of_weights = [](const std::string& each) { return each.starts_with("weights."); };
  if (!options.weights.empty() && std::any_of(overrides.begin(), overrides.end(), is_of_weights)) {
    // Fields such as weights.head are not accepted without weights.file.
    overrides.push_back("weights.file=" + yaml_string(resolve_path(options.weights, {})));
  }
  const std::string text = read_config_text(options.config);
  const auto load = [&] { return load_spec_text(catalog(), text, options.config, overrides); };
  TrainSpec spec = load();
  // Rank 0 shares the values now: each process opens the data before it learns what is resumed.
  std::vector<std::string> kept;
  if (!processes || processes->is_first()) kept = values_of_resumed_run(options, spec);
  std::string lines = fmt::format("{}", fmt::join(kept, "\n"));
  if (processes) lines = processes->share("values of the run", lines);
  std::istringstream in(lines);
  for (std::string line; std::getline(in, line);) overrides.push_back(line);
  return lines.empty() ? std::move(spec) : load();
}

RunFolder open_folder(const TrainOptions& options, const TrainSpec& spec, const std::string& path) {
  const std::vector<std::string> outputs = {options.gate.verdict, options.gate.junit};
  const bool is_free = options.run_dir.empty() && options.resume == "never" && !options.overwrite;
  if (is_free) return open_free_run_folder(spec.name, outputs);
  return RunFolder(path, outputs);
}

UnstartedFolder::~UnstartedFolder() {
  if (is_kept_ || std::uncaught_exceptions() == 0) return;
  try {
    folder_.remove_if_new();
  } catch (const std::exception&) {
    // Report the failure of the start, not this one.
  }
}

void check_keeps_config(const TrainOptions& options, const std::string& folder) {
  std::error_code ignored;
  if (!fs::equivalent(options.config, folder + "/config.yaml", ignored)) return;
  // If command.txt exists, a run wrote both files.
  if (fs::exists(folder + "/command.txt", ignored)) return;
  fail(ErrorKind::usage,
       "{} is in the run folder {}, where the run would replace it with the resolved config, "
       "without its comments; nothing was changed. Choose another folder with --run-dir",
       options.config, folder);
}

void refuse_random_evaluation(const TrainSpec& spec) {
  const std::string problem = random_evaluation(spec.data.transforms);
  if (!problem.empty()) throw Error(ErrorKind::usage, problem);
}

TrainStart load_start(const TrainOptions& options, const Job& job, const std::string& folder,
                      Progress& progress) {
  TrainStart start;
  std::optional<ResumeChoice> choice = choose_checkpoint(options, folder, job.model.plan, progress);
  if (!choice) {
    refuse_random_evaluation(job.spec);
    check_can_be_saved(job);
    start.point = fresh_start(job);
    if (const auto weights = start_weights(options, job.spec)) {
      const std::vector<std::string>& classes = job.data.splits.train.source->classes();
      AppliedWeights applied =
          apply_start_weights(*weights, job.model.plan, &classes, start.point.params.data());
      for (const std::string& line : applied.lines) progress.info(line);
      start.weights_file = weights->spec.file;
      start.weights = std::move(applied.source);
      // A resumed run could not create these weights again, so it cannot roll back to them.
      start.point.state.rollback_step = -1;
    }
    return start;
  }
  start.checkpoint = choice->file.path();
  const CheckpointHeader& header = choice->file.header();
  check_same_config(start.checkpoint, header, options, folder, job);
  start.other_data = check_same_data(start.checkpoint, header, job, options.allow_other_data);
  if (!start.other_data.empty()) {
    progress.warn(fmt::format("{}: {} (--allow-other-data)", start.checkpoint, start.other_data));
  }
  start.point = start_from_checkpoint(job, choice->file);
  warn_of_other_weights(options.weights, job.spec, start, progress);
  name_monitors(start.checkpoint, start.point);
  start.point.keep_forever = choice->is_named;
  return start;
}

void store_hash_of_weights(const TrainStart& start, Job& job) {
  std::optional<WeightsSpec>& weights = job.spec.weights;
  if (!weights || weights->sha256) return;
  if (start.checkpoint.empty()) {
    if (!start.weights.url.empty()) weights->sha256 = start.weights.sha256;
  } else {
    const TrainSpec before = load_stored_spec(catalog(), start.point.config, start.checkpoint);
    if (before.weights && before.weights->file == weights->file) {
      weights->sha256 = before.weights->sha256;
    }
  }
  if (!weights->sha256) return;
  TrainSpec stored =
      load_stored_spec(catalog(), job.resolved_config, "the config with all defaults");
  stored.weights->sha256 = weights->sha256;
  job.resolved_config = show_spec(catalog(), stored);
}

}  // namespace dpt
