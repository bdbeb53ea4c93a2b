#include "engine/run/lineage.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <utility>

#include <fmt/ranges.h>

#include "engine/checkpoints/checkpoint.h"
#include "engine/job/best.h"
#include "engine/run/run_files.h"
#include "engine/run/run_log.h"
#include "kernels/base/error.h"
#include "kernels/base/file_io.h"
#include "kernels/base/held_path.h"
#include "kernels/base/text.h"

namespace dpt {
namespace {

constexpr const char* kLog = "metrics.jsonl";

bool exists(const HeldPath& path) {
  return entry_type(path) != EntryType::none;
}

/// Returns a file's header if it is an intact checkpoint.
std::optional<CheckpointHeader> header_of(const HeldPath& path) {
  try {
    if (exists(path)) return read_checkpoint_header(path);
  } catch (const Error&) {
    // A file that cannot be read is not the checkpoint that the caller is looking for.
  }
  return std::nullopt;
}

bool is_best(const HeldPath& path, const RunState& state) {
  return why_not_best(path, state).empty();
}

/// The folder for files that no longer belong to the run. It is created for the first of them.
class AbandonedFolder {
 public:
  explicit AbandonedFolder(const RunFolder& folder) : folder_(folder) {}
  const HeldPath& place() {
    if (!place_) place_ = folder_.make_abandoned();
    return *place_;
  }
  HeldPath place_for(const HeldPath& file) { return place() / file.last_name(); }
  /// Copies the log to the folder before its lines move, so that a resume from a checkpoint in the
  /// folder can restore them.
  void keep_log() {
    const HeldPath log = folder_.at(kLog);
    try {
      if (!std::exchange(has_log_, true) && exists(log)) copy_durably(log, place_for(log));
    } catch (const Error&) {
      // If the disk is full, the run continues without the copy: the lines are in
      // metrics.abandoned.jsonl.
    }
  }
  /// Returns the place for a checkpoint of the run folder's own line of descent. First copies the
  /// log there.
  HeldPath place_for_own(const HeldPath& checkpoint) {
    keep_log();
    return place_for(checkpoint);
  }
  bool is_used() const { return place_.has_value(); }

 private:
  const RunFolder& folder_;
  std::optional<HeldPath> place_;
  bool has_log_ = false;
};

/// Relation of the resumed file to the folder.
struct Origin {
  bool is_own = false;  ///< the file is this run's: in its folder and not moved aside
  HeldPath own_place;   ///< its place as a checkpoint of the folder
  std::string checksum;
};

Origin origin_of(const RunFolder& folder, const std::string& from, const StartingPoint& start) {
  const std::string source = folder_of(from);
  const bool is_own =
      is_same_entry(source, folder.at("checkpoints")) || is_same_entry(source, folder.place());
  return {is_own, folder.checkpoint_place(start.state.step), start.checksum};
}

/// Returns true if the file `from` belongs to an abandoned branch of this folder and the branch's
/// log is next to the file.
bool is_of_branch(const RunFolder& folder, const std::string& from) {
  const std::string branch = folder_of(from);
  return !from.empty() && is_same_entry(branch + "/..", folder.at("checkpoints")) &&
         exists(branch + "/" + kLog);
}

/// Returns the steps of the checkpoints that the folder's line of descent shares with the abandoned
/// branch of the file `from`. Both logs have the same line about such a checkpoint, with the same
/// time.
std::set<std::int64_t> shared_steps(const RunFolder& folder, const std::string& from) {
  std::set<std::int64_t> shared;
  if (!is_of_branch(folder, from)) return shared;
  try {
    const auto branch = lines_of_checkpoints(folder_of(from) + "/" + kLog);
    for (const auto& [step, line] : lines_of_checkpoints(folder.at(kLog))) {
      const auto found = branch.find(step);
      if (found != branch.end() && found->second == line) shared.insert(step);
    }
  } catch (const Error&) {
    // Without the logs, no checkpoint counts as shared, and all checkpoints of the other line are
    // moved aside. Nothing is lost, and a message reports the move.
    shared.clear();
  }
  return shared;
}

/// Leaves in checkpoints/ only the resumed file and its ancestors. The resumed file gets its place
/// first and the newest other file moves last, so that the run can continue after a crash in
/// between.
void leave_branch(const RunFolder& folder, const std::string& from, const StartingPoint& start,
                  AbandonedFolder& abandoned, const Notify& notify) {
  const Origin origin = origin_of(folder, from, start);
  const std::int64_t step = start.state.step;
  const std::set<std::int64_t> shared = shared_steps(folder, from);
  std::vector<std::int64_t> left;
  const auto here = header_of(origin.own_place);
  if (!here || here->checksum != origin.checksum) {
    if (exists(origin.own_place)) {
      copy_durably(origin.own_place, abandoned.place_for_own(origin.own_place));
      left.push_back(step);
    }
    copy_durably(from, origin.own_place);
  }
  std::vector<std::int64_t> steps = list_steps(folder.at("checkpoints"));
  std::reverse(steps.begin(), steps.end());
  for (const std::int64_t other : steps) {
    const bool is_ancestor = other < step && (origin.is_own || shared.contains(other));
    if (other == step || is_ancestor) continue;
    const HeldPath path = folder.checkpoint_place(other);
    move_durably(path, abandoned.place_for_own(path));
    left.push_back(other);
  }
  if (left.empty()) return;
  std::sort(left.begin(), left.end());
  const bool is_one = left.size() == 1;
  notify(
      fmt::format("the run continues from step {}; the checkpoint{} {}, which {}, {} moved to {}",
                  step, is_one ? " of step" : "s of steps", fmt::join(left, ", "),
                  is_one ? "is not its ancestor" : "are not its ancestors", is_one ? "is" : "are",
                  abandoned.place().text()));
}

/// Moves the lines of the log that a resume or a fresh start leaves behind.
void leave_log_lines(const RunFolder& folder, const std::string& from, const StartingPoint& start,
                     const Notify& notify) {
  try {
    const RunState& state = start.state;
    // The file belongs to an abandoned branch, whose log is next to its checkpoints.
    if (is_of_branch(folder, from)) {
      const RestoredLines lines = restore_log_lines(folder.place(), folder_of(from) + "/" + kLog,
                                                    state.step, state.epoch, state.rollbacks);
      notify(
          fmt::format("metrics.jsonl has {} of this branch again; {} of the other one {} moved to "
                      "metrics.abandoned.jsonl",
                      counted(lines.restored, "line"), counted(lines.abandoned, "line"),
                      lines.abandoned == 1 ? "is" : "are"));
      return;
    }
    const bool is_own = from.empty() || origin_of(folder, from, start).is_own;
    const std::int64_t moved =
        is_own ? abandon_log_lines(folder.place(), state.step, state.epoch, state.rollbacks)
               : abandon_log_lines(folder.place(), -1, -1);
    if (moved > 0) {
      notify(
          fmt::format("{} of metrics.jsonl, of steps that will be repeated, {} moved to "
                      "metrics.abandoned.jsonl",
                      counted(moved, "line"), moved == 1 ? "is" : "are"));
    }
  } catch (const Error& error) {
    notify(fmt::format("warning: {}; steps may appear twice in metrics.jsonl", error.what()));
  }
}

/// Returns the folders that contain `folder`: the one in its path as written and, if `folder` is a
/// link, the one that contains its target.
std::array<std::string, 2> folders_above(const std::string& folder) {
  return {folder_of(folder), folder + "/.."};
}

/// Returns the files that may be the best checkpoint of `state` if its other checkpoints are in
/// `place`.
std::vector<std::string> bests_near(const std::string& place, const RunState& state) {
  std::vector<std::string> paths = {place + "/" + checkpoint_name(state.best_step),
                                    place + "/best.safetensors"};
  for (const std::string& above : folders_above(place)) {
    paths.push_back(above + "/best.safetensors");
  }
  return paths;
}

/// Returns the first of the files that is the best checkpoint of `state`; empty if none is.
std::string first_best(const std::vector<std::string>& paths, const RunState& state) {
  const auto found = std::find_if(paths.begin(), paths.end(),
                                  [&](const auto& path) { return is_best(path, state); });
  return found != paths.end() ? *found : std::string();
}

/// Returns the files that may be the best checkpoint of `state`, the likeliest first.
std::vector<std::string> best_candidates(const RunFolder& folder, const std::string& from,
                                         const RunState& state) {
  const std::string name = checkpoint_name(state.best_step);
  std::vector<std::string> paths = {folder.best(), folder.checkpoint(state.best_step)};
  if (from.empty()) return paths;
  const std::string source = folder_of(from);
  paths.push_back(from);
  for (std::string& path : bests_near(source, state)) paths.push_back(std::move(path));
  // The file may have been moved aside: from/../../.. is then the run folder.
  for (const std::string& above : folders_above(source)) {
    paths.push_back(above + "/" + name);
    for (const std::string& run : folders_above(above)) {
      paths.push_back(run + "/best.safetensors");
    }
  }
  return paths;
}

/// Sets StartingPoint::ancestors to files next to the resumed one: checkpoints in the same folder
/// or, if the resumed file is a run's best.safetensors, checkpoints of that run. Ancestors of an
/// abandoned branch may be in checkpoints/ of `folder`.
void find_ancestors(const Job& job, const RunFolder& folder, const std::string& from,
                    StartingPoint& start) {
  const std::int64_t step = start.state.rollback_step;
  const bool rolls_back = job.spec.train.on_divergence.rolls_back();
  if (!rolls_back || from.empty() || step <= 0 || step == start.state.step) return;
  const std::string source = folder_of(from);
  std::vector<std::string> places = {source, source + "/checkpoints"};
  if (shared_steps(folder, from).contains(step)) places.push_back(folder.checkpoints());
  for (const std::string& place : places) {
    const std::string path = place + "/" + checkpoint_name(step);
    const auto header = header_of(path);
    if (!header || header->state.step != step) continue;
    start.ancestors.emplace_back(step, path);
    const RunState& state = header->state;
    if (!state.best || state.best_step == step) return;
    const std::string best = first_best(bests_near(place, state), state);
    if (!best.empty()) start.ancestors.emplace_back(state.best_step, best);
    return;
  }
}

/// Moves a best.safetensors that is not of this line of descent to `abandoned`. Leaves an older
/// best of this line in place, to be replaced: a crash came before the new best was copied.
void leave_best(const RunFolder& folder, const StartingPoint& start, AbandonedFolder& abandoned,
                const Notify& notify) {
  const HeldPath best = folder.best_place();
  if (!exists(best)) return;
  const auto header = header_of(best);
  if (header && start.state.best && header->state.step < start.state.best_step &&
      header->config == start.config) {
    return;
  }
  const HeldPath to = abandoned.place_for(best);
  move_durably(best, to);
  notify(fmt::format(
      "{} is not the best checkpoint of this run: moved to {}{}", best.text(), to.text(),
      header
          ? fmt::format(" (step {}; --resume {} continues from it)", header->state.step, to.text())
          : ""));
}

/// Returns the size of a file, or of all files in a folder, in bytes.
std::uint64_t size_of(const HeldPath& path) {
  struct stat status {};
  if (::fstatat(path.at(), path.name(), &status, AT_SYMLINK_NOFOLLOW) != 0) return 0;
  if (!S_ISDIR(status.st_mode)) return static_cast<std::uint64_t>(status.st_size);
  std::uint64_t bytes = 0;
  for (const std::string& name : list_names(path)) bytes += size_of(path / name);
  return bytes;
}

/// Reports how much disk space abandoned branches take. They stay until the user removes them.
void report_abandoned(const RunFolder& folder, const Notify& notify) {
  std::int64_t folders = 0;
  std::uint64_t bytes = 0;
  const HeldPath checkpoints = folder.at("checkpoints");
  for (const std::string& name : list_names(checkpoints)) {
    if (number_of_abandoned(name) < 0) continue;
    ++folders;
    bytes += size_of(checkpoints / name);
  }
  notify(fmt::format("{} {} and {}: rm -r {}/abandoned-*",
                     folders == 1 ? std::string("1 abandoned branch takes")
                                  : fmt::format("{} abandoned branches take", folders),
                     mebibytes(bytes),
                     folders == 1 ? "stays until you remove it" : "stay until you remove them",
                     folder.checkpoints()));
}

/// Makes best.safetensors the best known checkpoint, and updates `start` to agree with it.
void settle_best(const Job& job, const RunFolder& folder, const std::string& from,
                 const std::vector<std::string>& candidates, StartingPoint& start,
                 AbandonedFolder& abandoned, const Notify& notify) {
  RunState& state = start.state;
  const KeepBestSpec& keep = job.spec.checkpoint.keep_best;
  const std::string monitor = best_monitor_of(job.spec);
  std::string best_file = state.best ? first_best(candidates, state) : std::string();
  const bool same_monitor = state.best_monitor.empty() || state.best_monitor == monitor;
  if (state.best && (best_file.empty() || !same_monitor)) {
    // Choose from the checkpoints that are known: the best so far, if its file was found, and the
    // one that the run resumes from.
    RunState before = std::exchange(state, [&] {
      RunState without = state;
      forget_best(without);
      return without;
    }());
    std::string next;
    const auto offer = [&](const std::string& path, const RunState& of, const std::string& sum) {
      const auto value = monitored_value(keep, of);
      if (!value || !is_better(keep, *value, state.best)) return;
      state.best = *value;
      state.best_step = of.step;
      state.best_monitor = monitor;
      state.best_checksum = sum;
      next = path;
    };
    if (!best_file.empty()) {
      const CheckpointHeader header = read_checkpoint_header(best_file);
      offer(best_file, header.state, header.checksum);
    }
    offer(from, state, start.checksum);
    notify(best_file.empty()
               ? fmt::format("warning: the best checkpoint (step {}, {} {:.6g}) was not found",
                             before.best_step, before.best_monitor, *before.best)
               : fmt::format("checkpoint.keep_best monitors {} now and monitored {} before",
                             monitor, before.best_monitor));
    notify(next.empty()
               ? "there is no best checkpoint now; the next validation gives the first candidate"
               : fmt::format("the best checkpoint so far is that of step {}: {} {:.6g}",
                             state.best_step, keep.monitor, *state.best));
    best_file = next;
  }
  if (best_file.empty()) {
    leave_best(folder, start, abandoned, notify);
  } else if (!is_same_entry(best_file, folder.best_place())) {
    const auto there = header_of(folder.best_place());
    if (!there || there->checksum != state.best_checksum) {
      leave_best(folder, start, abandoned, notify);
      copy_durably(best_file, folder.best_place());
    }
  }
}

}  // namespace

void take_place(const Job& job, RunFolder& folder, const std::string& from, bool overwrite,
                StartingPoint& start, const Notify& notify) {
  AbandonedFolder abandoned(folder);
  std::vector<std::string> candidates = best_candidates(folder, from, start.state);
  std::string resumed = from;
  find_ancestors(job, folder, from, start);
  if (overwrite) {
    for (std::string& path : candidates) path = folder.after_set_aside(path);
    // The ancestors stay in replaced/ until the first save. In checkpoints/ they would count as
    // checkpoints of the new run, and the old run would not be restored after a crash.
    for (auto& [step, path] : start.ancestors) path = folder.after_set_aside(path.text());
    resumed = folder.after_set_aside(from);
    folder.set_aside();
  } else {
    if (!from.empty()) leave_branch(folder, from, start, abandoned, notify);
    for (auto& [step, path] : start.ancestors) {
      const HeldPath place = folder.checkpoint_place(step);
      if (!is_same_entry(path, place)) copy_durably(path, place);
      path = place;
    }
    // This is a new run in a folder in which another run left only its best.
    if (from.empty() && exists(folder.best())) abandoned.keep_log();
    // The best may be among the files that were moved.
    if (abandoned.is_used()) {
      candidates.push_back((abandoned.place() / checkpoint_name(start.state.best_step)).text());
    }
    leave_log_lines(folder, from, start, notify);
    start.is_saved = !from.empty();
  }
  settle_best(job, folder, resumed, candidates, start, abandoned, notify);
  if (abandoned.is_used()) report_abandoned(folder, notify);
}

void leave_later(RunFolder& folder, const RunState& state, const Notify& notify) {
  if (const std::string moved = folder.check_held(); !moved.empty()) notify("warning: " + moved);
  AbandonedFolder abandoned(folder);
  // The newest checkpoint moves last: after a crash in between, the run continues from it and gets
  // here again.
  std::vector<std::int64_t> steps = list_steps(folder.at("checkpoints"));
  std::reverse(steps.begin(), steps.end());
  for (const std::int64_t step : steps) {
    if (step <= state.step) continue;
    const HeldPath path = folder.checkpoint_place(step);
    move_durably(path, abandoned.place_for_own(path));
    notify(fmt::format("the checkpoint of step {} is moved to {}", step, abandoned.place().text()));
  }
  try {
    abandon_log_lines(folder.place(), state.step, state.epoch, state.rollbacks);
  } catch (const Error& error) {
    notify(fmt::format("warning: {}; steps may appear twice in metrics.jsonl", error.what()));
  }
}

HeldPath find_best(const RunFolder& folder, const RunState& state, const Notify& notify,
                   const std::vector<std::pair<std::int64_t, HeldPath>>& ancestors) {
  const HeldPath best = folder.best_place();
  const std::string why_not = why_not_best(best, state);
  if (why_not.empty()) return best;
  HeldPath other = folder.checkpoint_place(state.best_step);
  for (const auto& [step, path] : ancestors) {
    if (step == state.best_step && !exists(other)) other = path;
  }
  if (!is_best(other, state)) {
    fail(ErrorKind::data,
         "{}; expected the best checkpoint of this run there (step {}, {} {:.6g}). The last "
         "checkpoint is saved: restore the best one and run the same command again; if it is lost, "
         "remove {} and run the same command again, which continues with the best of the remaining "
         "checkpoints",
         why_not, state.best_step, state.best_monitor, *state.best, best.text());
  }
  notify(fmt::format("warning: {} was not the best checkpoint of this run; it is restored from {}",
                     best.text(), other.text()));
  copy_durably(other, best);
  return best;
}

}  // namespace dpt
