#include "app/evaluate/checkpoint_choice.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "app/base/catalog.h"
#include "app/base/console.h"
#include "engine/config/stored_spec.h"
#include "engine/job/best.h"
#include "engine/run/run_folder.h"
#include "kernels/base/error.h"
#include "kernels/base/file_io.h"

namespace dpt {
namespace fs = std::filesystem;
namespace {

/// Returns true if the file `best` was saved as the best checkpoint of the run with this config,
/// possibly at a later step than the run's newest checkpoint. Throws ErrorKind::data for a damaged
/// file.
bool is_best_of_run(const std::string& best, const std::string& config) {
  const CheckpointHeader header = read_checkpoint_header(best);
  return header.state.best && header.state.best_step == header.state.step &&
         refused_changes(catalog(), header.config, best, config).empty();
}

[[noreturn]] void refuse_best(const std::string& expected, const std::string& best,
                              const std::string& why_not, const CheckpointUse& use,
                              const char* effect = "restore its best checkpoint") {
  fail(ErrorKind::data,
       "expected {}, but {}. Resume the run to {}, or name the file to {}: dpt {} {}", expected,
       why_not, effect, use.verb, use.command, best);
}

/// Returns the best checkpoint of a run folder. If the run has no best one, returns `newest`, its
/// newest good checkpoint. Refuses a best.safetensors that belongs to another run.
std::string best_or_newest(const std::string& folder, const std::string& newest,
                           const CheckpointUse& use) {
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
    // A best step after the newest regular checkpoint is saved only in best.safetensors.
    if (is_of_run && step > run.step) return best;
    const std::string another = best + " belongs to another run";
    if (!run.best) {
      refuse_best(fmt::format("no best.safetensors, because {} records no best checkpoint", newest),
                  best, another, use, "move that file away");
    }
    // Use the kept checkpoint if best.safetensors is an older best: a crash or a full disk may have
    // prevented its replacement.
    if (!is_of_run || step > run.best_step || !has_kept) {
      refuse_best(fmt::format("the run's best checkpoint, of step {} (according to {})",
                              run.best_step, newest),
                  best, step > run.step ? another : why_not, use);
    }
  }
  say(fmt::format("warning: {}; the {} is {} instead: {}", why_not,
                  has_kept ? "best checkpoint" : "newest checkpoint, which is not the best,",
                  use.done, has_kept ? kept : newest));
  return has_kept ? kept : newest;
}

/// Throws for a folder without a good checkpoint. The message lists what the folder has instead.
[[noreturn]] void refuse_folder(const std::string& folder, const CheckpointUse& use) {
  const std::string replaced = folder_of_run(folder);
  if (replaced != folder) {
    fail(ErrorKind::data,
         "{}: the run folder has no good checkpoint. {} holds the run that --overwrite was about "
         "to replace: {} that run, or run dpt train without --overwrite to restore it",
         folder, replaced, use.verb);
  }
  constexpr std::size_t kMax = 5;
  std::vector<std::string> files;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() == ".safetensors") files.push_back(entry->path().string());
  }
  if (files.empty() && !is_run_folder(folder)) {
    fail(ErrorKind::data,
         "{}: expected a run folder or a file to {}, found a folder without checkpoints", folder,
         use.verb);
  }
  if (files.empty()) fail(ErrorKind::data, "{}: the run folder has no good checkpoint", folder);
  std::sort(files.rbegin(), files.rend());
  const std::size_t more = files.size() > kMax ? files.size() - kMax : 0;
  files.resize(files.size() - more);
  fail(ErrorKind::data,
       "{}: expected a run folder or a file, found a folder with {}{}: name the file to {}", folder,
       fmt::join(files, ", "), more > 0 ? fmt::format(" and {} more", more) : "", use.verb);
}

}  // namespace

std::string find_checkpoint(const std::string& target, const CheckpointUse& use) {
  std::error_code error;  // ignored: a name that is too long, or a folder without permission
  if (fs::is_regular_file(target, error)) {
    if (const fs::path type = fs::path(target).extension(); type == ".yaml" || type == ".yml") {
      fail(ErrorKind::data,
           "{}: expected a run folder or a checkpoint, found a config: name the run that was "
           "trained with it (`dpt runs` lists the runs)",
           target);
    }
    return target;
  }
  if (!fs::is_directory(target, error)) {
    fail(ErrorKind::data, "{}: no such run folder or checkpoint (`dpt runs` lists the runs)",
         target);
  }
  const std::string newest = newest_good_checkpoint(
      target + "/checkpoints", [](const std::string& text) { say("warning: " + text); });
  if (!newest.empty()) return best_or_newest(target, newest, use);
  const std::string best = target + "/best.safetensors";
  if (!fs::exists(best, error)) {
    refuse_folder(target, use);
  }
  const std::string config = target + "/config.yaml";
  if (fs::exists(config, error) && !is_best_of_run(best, read_whole_file(config))) {
    refuse_best("the best checkpoint of the run of " + config, best,
                best + " belongs to another run", use);
  }
  return best;
}

const char* WeightsChoice::words() const {
  if (name == "raw") return "";
  return name == kSwa ? " (average of epochs)" : " (moving average)";
}

WeightsChoice choose_weights(const Checkpoint& checkpoint, const std::string& use,
                             const TrainSpec& spec, const std::string& path) {
  const auto* average = average_of(checkpoint);
  const std::string kept = average ? average->first : std::string();
  if (is_average(use) && use != kept) {
    fail(ErrorKind::usage, "--use {}: {} does not have this average of the weights: {}{}", use,
         path,
         use == kSwa && spec.train.swa ? "it was saved before the first epoch of train.swa"
                                       : fmt::format("the run did not use train.{}", use),
         average ? fmt::format("; it has the average of train.{} (--use {})", kept, kept) : "");
  }
  if (average && use != "raw") return {kept, true, &average->second};
  return {"raw", average != nullptr, &checkpoint.params};
}

}  // namespace dpt
