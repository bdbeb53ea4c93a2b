#include "app/train/resume_choice.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <vector>

#include <fmt/ranges.h>

#include "app/train/train_options.h"
#include "app/train/train_report.h"
#include "engine/run/run_files.h"
#include "engine/run/run_log.h"
#include "kernels/base/error.h"
#include "kernels/base/file_io.h"

namespace dpt {
namespace fs = std::filesystem;
namespace {

constexpr const char* kBest = "best";

bool is_file(const std::string& path) {
  return entry_type(path) == EntryType::file;
}

/// Returns the folders of abandoned branches, oldest first.
std::vector<std::string> abandoned_folders(const std::string& folder) {
  std::vector<std::int64_t> found;
  const std::string checkpoints = folder + "/checkpoints";
  for (const std::string& name : list_names(checkpoints)) {
    if (const std::int64_t number = number_of_abandoned(name); number >= 0) found.push_back(number);
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> paths;
  for (const std::int64_t number : found)
    paths.push_back(checkpoints + "/" + abandoned_name(number));
  return paths;
}

/// Returns the step that a word names: "28", "step-28", "step-00000028.safetensors"; otherwise -1.
std::int64_t step_of_word(std::string_view word) {
  constexpr std::string_view kPrefix = "step-", kSuffix = ".safetensors";
  if (word.starts_with(kPrefix)) {
    word.remove_prefix(kPrefix.size());
    if (word.ends_with(kSuffix)) word.remove_suffix(kSuffix.size());
  }
  std::int64_t step = -1;
  const char* end = word.data() + word.size();
  const auto result = std::from_chars(word.data(), end, step);
  return result.ec == std::errc() && result.ptr == end && step >= 0 ? step : -1;
}

/// Lists the steps in a folder: "steps 28, 56"; long lists are shortened in the middle.
std::string steps_text(const std::string& folder) {
  constexpr std::size_t kMax = 20, kLast = 3;
  std::vector<std::string> steps;
  for (const std::string& path : list_checkpoints(folder)) {
    steps.push_back(std::to_string(step_of_checkpoint(fs::path(path).filename().string())));
  }
  std::reverse(steps.begin(), steps.end());
  if (steps.empty()) return "no checkpoint";
  if (steps.size() > kMax) {
    const auto begin = steps.begin() + static_cast<std::ptrdiff_t>(kMax - kLast);
    steps.erase(begin, steps.end() - static_cast<std::ptrdiff_t>(kLast));
    steps.insert(steps.begin() + static_cast<std::ptrdiff_t>(kMax - kLast), "...");
  }
  return fmt::format("step{} {}", steps.size() > 1 ? "s" : "", fmt::join(steps, ", "));
}

/// Throws the error for an unknown name in --resume. The message lists the known names.
[[noreturn]] void refuse_name(const std::string& name, const std::string& folder) {
  std::string text = fmt::format(
      "--resume {}: expected auto, never, must, a checkpoint file, a step of the run, best, or "
      "another run's folder, found no such file; {}/checkpoints has {}",
      name, folder, steps_text(folder + "/checkpoints"));
  for (const std::string& place : abandoned_folders(folder)) {
    if (list_checkpoints(place).empty()) continue;
    text += fmt::format("; {} has {}", place, steps_text(place));
  }
  if (is_file(folder + "/best.safetensors")) {
    text += fmt::format("; --resume {} uses {}/best.safetensors", kBest, folder);
  }
  throw Error(ErrorKind::usage, text);
}

/// Returns the path that --resume names: a file with this path, else a file of the run with this
/// name, else a folder with this path.
std::string named_path(const std::string& name, const std::string& folder) {
  if (is_file(name)) return name;
  std::vector<std::string> places;
  if (name == kBest) places.push_back(folder + "/best.safetensors");
  const std::int64_t step = step_of_word(name);
  if (step >= 0) places.push_back(folder + "/checkpoints/" + checkpoint_name(step));
  if (!name.starts_with('/')) {
    for (const char* inside : {"/checkpoints/", "/"}) {
      places.push_back(folder + inside + name);
      places.push_back(folder + inside + name + ".safetensors");
    }
  }
  const auto found = std::find_if(places.begin(), places.end(), is_file);
  if (found != places.end()) return *found;
  if (entry_type(name) != EntryType::folder) refuse_name(name, folder);
  return name;
}

/// Returns the folder to search for the newest checkpoint. `folder` is a run folder, or contains
/// the checkpoints itself.
std::string place_of_checkpoints(const std::string& folder) {
  return list_checkpoints(folder).empty() ? folder + "/checkpoints" : folder;
}

/// Finds the intact checkpoint to continue from if those in checkpoints/ are damaged: the best,
/// else the newest of an abandoned branch. Returns its header and path.
std::optional<std::pair<CheckpointHeader, std::string>> intact_elsewhere(
    const std::string& folder) {
  std::vector<std::string> paths = {folder + "/best.safetensors"};
  std::vector<std::string> branches = abandoned_folders(folder);
  std::reverse(branches.begin(), branches.end());
  for (const std::string& branch : branches) {
    for (const std::string& path : list_checkpoints(branch)) paths.push_back(path);
    paths.push_back(branch + "/best.safetensors");
  }
  for (const std::string& path : paths) {
    try {
      if (is_file(path)) return std::pair(read_checkpoint_header(path), path);
    } catch (const Error&) {
      // This file is damaged too: try the next.
    }
  }
  return std::nullopt;
}

/// Throws the error that the run cannot be resumed. `what` is the problem of its checkpoints.
[[noreturn]] void refuse_without_good(const TrainOptions& options, const std::string& folder,
                                      const std::string& what) {
  const auto intact = intact_elsewhere(folder);
  if (!intact) {
    fail(ErrorKind::data, "{}. Start a new run with --overwrite or --resume never", what);
  }
  const auto& [header, path] = *intact;
  fail(ErrorKind::data,
       "{}. {} is good: step {}, epoch {}. To continue from it:\n  {}\nTo start a new run instead: "
       "--resume never",
       what, path, header.state.step, header.state.epoch, resume_command(options, path));
}

/// Throws if the checkpoint belongs to the run that --overwrite replaced in this folder: that run's
/// log would be removed with replaced/.
void check_is_not_replaced(const std::string& named, const std::string& folder) {
  std::error_code error;
  const fs::path replaced = fs::weakly_canonical(folder + "/" + kReplaced, error);
  const fs::path inside = fs::weakly_canonical(named, error).lexically_relative(replaced);
  if (inside.empty() || *inside.begin() == "..") return;
  fail(ErrorKind::usage,
       "--resume {}: this is the run that --overwrite replaced. To bring it back:\n  dpt runs "
       "--restore {}",
       named, folder);
}

/// Returns the last step whose checkpoint was saved in checkpoints/, according to the log; -1 if
/// there is none.
std::int64_t last_saved_step(const std::string& folder) {
  const auto lines = lines_of_checkpoints(folder + "/metrics.jsonl");
  return lines.empty() ? -1 : lines.rbegin()->first;
}

std::optional<VerifiedCheckpoint> newest_of(const std::string& place, const Plan& plan,
                                            Progress& progress) {
  return VerifiedCheckpoint::newest_good(place, plan,
                                         [&](const std::string& text) { progress.warn(text); });
}

}  // namespace

std::optional<ResumeChoice> choose_checkpoint(const TrainOptions& options,
                                              const std::string& folder, const Plan& plan,
                                              Progress& progress) {
  if (options.resume == "never") return std::nullopt;
  if (options.overwrite && options.resume == "auto") return std::nullopt;
  const std::string checkpoints = folder + "/checkpoints";
  if (options.resume != "auto" && options.resume != "must") {
    const std::string named = named_path(options.resume, folder);
    if (!options.overwrite) check_is_not_replaced(named, folder);
    if (entry_type(named) != EntryType::folder)
      return ResumeChoice{VerifiedCheckpoint(named, plan), true};
    const std::string place = place_of_checkpoints(named);
    auto newest = newest_of(place, plan, progress);
    if (newest) return ResumeChoice{*std::move(newest), !is_same_entry(place, checkpoints)};
    const bool is_empty = list_checkpoints(place).empty();
    fail(is_empty ? ErrorKind::usage : ErrorKind::data,
         "--resume {}: expected a run folder with a good checkpoint, but {} has {}", options.resume,
         place, is_empty ? "no checkpoint" : "only damaged ones (see above)");
  }
  if (auto newest = newest_of(checkpoints, plan, progress)) {
    return ResumeChoice{*std::move(newest), false};
  }
  if (!list_checkpoints(checkpoints).empty()) {
    refuse_without_good(options, folder,
                        checkpoints + " has checkpoints, but none of them is good (see above)");
  }
  if (options.resume == "must") {
    const std::string none = fmt::format("--resume must: {} has no checkpoint", checkpoints);
    if (!intact_elsewhere(folder)) throw Error(ErrorKind::data, none);
    refuse_without_good(options, folder, none);
  }
  if (const std::int64_t step = last_saved_step(folder); step >= 0) {
    refuse_without_good(
        options, folder,
        fmt::format(
            "{} has no checkpoint, but the run has saved step {} there: bring the files back "
            "(if the folder is on another disk, is it mounted?)",
            checkpoints, step));
  }
  return std::nullopt;
}

}  // namespace dpt
