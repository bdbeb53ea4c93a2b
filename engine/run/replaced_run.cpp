#include "engine/run/replaced_run.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "engine/checkpoints/checkpoint.h"
#include "engine/run/linked_checkpoints.h"
#include "engine/run/run_files.h"
#include "kernels/base/error.h"
#include "kernels/base/file_io.h"

namespace dpt {
namespace {

constexpr const char* kCheckpoints = "checkpoints";
/// Target of the link replaced/checkpoints if checkpoints/ is a link.
constexpr const char* kLinkToReplaced = "../checkpoints/replaced";
/// Temporary folder, in the checkpoints of the run that is restored, for the new run's files until
/// all of them are there.
constexpr const char* kLeaving = "abandoned-new.tmp";

bool has_entry(const HeldPath& path) {
  return entry_type(path, false) != EntryType::none;
}

bool is_link(const HeldPath& path) {
  return entry_type(path, false) == EntryType::link;
}

/// Moves `name` from one run's folder to another's.
void move_entry(const HeldPath& from, const HeldPath& to, const std::string& name) {
  make_folders((to / name).folder());
  move_durably(from / name, to / name);
}

/// Lists the files in checkpoints/ whose names dpt uses, the newest checkpoint last.
std::vector<std::string> names_of_checkpoints(const HeldPath& checkpoints) {
  std::vector<std::string> names;
  for (const std::string& name : list_names(checkpoints)) {
    if (is_checkpoint_name(name)) names.push_back(name);
  }
  std::stable_sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
    return step_of_checkpoint(a) < step_of_checkpoint(b);
  });
  return names;
}

void move_checkpoints(const HeldPath& from, const HeldPath& to) {
  make_folders(to);
  for (const std::string& name : names_of_checkpoints(from)) move_entry(from, to, name);
}

/// Removes folders that may also hold foreign files, if they are empty.
void remove_emptied(const HeldPath& folder) {
  for (const char* name : {"logs", "tensorboard"}) remove_if_empty(folder / name);
}

void set_checkpoints_aside(const HeldPath& folder, const HeldPath& aside) {
  if (!is_link(folder / kCheckpoints)) return move_entry(folder, aside, kCheckpoints);
  link_durably(kLinkToReplaced, aside / kCheckpoints);
  move_checkpoints(folder / kCheckpoints, folder / kCheckpoints / kReplacedCheckpoints);
}

void bring_checkpoints_back(const HeldPath& folder, const HeldPath& aside) {
  const HeldPath linked = folder / kCheckpoints / kReplacedCheckpoints;
  if (is_link(aside / kCheckpoints) && is_link(folder / kCheckpoints)) {
    if (has_entry(linked)) move_checkpoints(linked, folder / kCheckpoints);
    remove_if_empty(linked);
    remove_durably(aside / kCheckpoints);
  } else if (!has_entry(folder / kCheckpoints)) {
    if (has_entry(aside / kCheckpoints)) move_entry(aside, folder, kCheckpoints);
  } else {
    // The new run's folder stayed because it holds other files.
    for (const std::string& name : list_names(aside / kCheckpoints)) {
      move_entry(aside, folder, kCheckpoints + ("/" + name));
    }
  }
}

/// Restores every file from replaced.moving/. If another version moved a whole folder, it may also
/// hold foreign files.
bool bring_back(const HeldPath& folder) {
  const HeldPath aside = folder / kMoving;
  bool any = has_entry(aside / kCheckpoints);
  for (const std::string& name : list_names(aside)) {
    if (name == kCheckpoints || name.ends_with(kTemporarySuffix)) continue;
    any = true;
    if (entry_type(aside / name, false) != EntryType::folder) {
      move_entry(aside, folder, name);
      continue;
    }
    for (const std::string& inner : list_names(aside / name)) {
      move_entry(aside, folder, name + "/" + inner);
    }
  }
  bring_checkpoints_back(folder, aside);
  remove_tree(aside);
  return any;
}

/// Removes the run that is in place, its newest checkpoint last, so that the run can still continue
/// from that checkpoint after a crash in between.
void remove_run(const HeldPath& folder) {
  const HeldPath checkpoints = folder / kCheckpoints;
  for (const std::string& name : names_of_checkpoints(checkpoints)) remove_tree(checkpoints / name);
  for (const std::string& name : entries_of_run(folder)) {
    if (name != kCheckpoints) remove_tree(folder / name);
  }
  remove_emptied(folder);
}

/// Returns abandoned-1, or the next free number.
HeldPath free_abandoned_in(const HeldPath& checkpoints) {
  std::int64_t number = 1;
  while (has_entry(checkpoints / abandoned_name(number))) ++number;
  return checkpoints / abandoned_name(number);
}

/// Moves the files of the new run away while the old one is in replaced.restoring/. Returns the
/// name of the folder that receives them.
std::string leave_new_run(const HeldPath& folder) {
  const HeldPath checkpoints = folder / kCheckpoints, old = folder / kRestoring / kCheckpoints;
  const HeldPath leaving = old / kLeaving;
  const bool all = !list_steps(checkpoints).empty() || !list_steps(leaving).empty();
  if (all) {
    move_checkpoints(checkpoints, leaving);
    for (const std::string& name : entries_of_run(folder)) {
      if (name != kCheckpoints) move_entry(folder, leaving, name);
    }
  } else if (has_entry(folder / "best.safetensors")) {
    // The best moves last: while it is in place, a call after a crash moves the others too.
    for (const char* name : {"train.log", "metrics.jsonl", "best.safetensors"}) {
      if (has_entry(folder / name)) move_entry(folder, leaving, name);
    }
  }
  remove_run(folder);
  remove_if_empty(checkpoints);
  if (!has_entry(leaving)) return {};
  const HeldPath kept = free_abandoned_in(old);
  move_durably(leaving, kept);
  return kept.last_name();
}

RestoredRun finish_restoring(const HeldPath& folder) {
  RestoredRun restored;
  if (is_set_aside(folder, kRestoring)) {
    restored.abandoned = leave_new_run(folder);
    move_durably(folder / kRestoring, folder / kMoving);
  }
  if (is_set_aside(folder, kMoving)) restored.any = bring_back(folder);
  return restored;
}

/// Returns true for files that systems leave in any folder: Finder's notes, and files that were
/// removed while open on NFS.
bool is_litter(std::string_view name) {
  return name == ".DS_Store" || name.starts_with("._") || name.starts_with(".nfs");
}

/// Returns the name of an entry in the folder `name` that no run wrote; empty if there is none.
std::string foreign_name_in(const HeldPath& folder, const char* name) {
  const OwnNames own(folder), inside(folder / name);
  for (const std::string& each : list_names(folder / name)) {
    if (!own.has(each) && !inside.has(each) && !is_litter(each)) return each;
  }
  return {};
}

void finish_removal(const HeldPath& folder) {
  if (!is_set_aside(folder, kRemoved)) return;
  const HeldPath linked = folder / kCheckpoints / kReplacedCheckpoints;
  if (is_link(folder / kRemoved / kCheckpoints) && has_entry(linked)) remove_tree(linked);
  remove_tree(folder / kRemoved);
}

/// Refuses to continue if a link in replaced/ leads to old checkpoints on another disk but they are
/// not there. Then the disk is missing, and what the new run saved is unknown.
void check_has_replaced_checkpoints(const HeldPath& folder) {
  const HeldPath checkpoints = folder / kCheckpoints;
  for (const std::string_view name : {kMoving, kReplaced, kRestoring}) {
    const HeldPath link = folder / name / kCheckpoints;
    if (!is_link(link) || has_entry(checkpoints / kReplacedCheckpoints)) continue;
    // While files move, the checkpoints may be in place: before the first has moved or after the
    // last is back.
    const bool may_be_in_place = name == kMoving && (has_record_of_run(folder) ||
                                                     !names_of_checkpoints(checkpoints).empty());
    if (may_be_in_place) continue;
    fail(ErrorKind::data,
         "{} holds the run that --overwrite replaced; expected its checkpoints in {}, found "
         "nothing there: is the disk mounted? Nothing was changed. Mount the disk; if it is lost, "
         "remove {}, which deletes that run",
         (folder / name).text(), (checkpoints / kReplacedCheckpoints).text(),
         (folder / name).text());
  }
}

}  // namespace

HeldPath make_abandoned_in(const HeldPath& checkpoints) {
  HeldPath path = free_abandoned_in(checkpoints);
  make_folders(path);
  return path;
}

bool is_set_aside(const HeldPath& folder, const char* name) {
  return entry_type(folder / name, false) == EntryType::folder &&
         foreign_name_in(folder, name).empty();
}

void check_replaced_run(const HeldPath& folder) {
  check_has_replaced_checkpoints(folder);
  for (const char* name : {kMoving, kReplaced, kRestoring}) {
    const HeldPath aside = folder / name;
    if (entry_type(aside, false) != EntryType::folder || is_set_aside(folder, name) ||
        list_steps(aside / kCheckpoints).empty()) {
      continue;
    }
    fail(ErrorKind::usage,
         "{} holds the run that --overwrite replaced, and files that dpt did not write ({}): move "
         "these files away; nothing was changed",
         aside.text(), foreign_name_in(folder, name));
  }
}

bool has_replaced_run(const HeldPath& folder) {
  return is_set_aside(folder, kReplaced) &&
         entry_type(folder / kReplaced / kCheckpoints) == EntryType::folder &&
         !list_steps(folder / kCheckpoints).empty();
}

void set_run_aside(const HeldPath& folder) {
  const std::vector<std::string> entries = entries_of_run(folder);
  if (has_entry(folder / kReplaced)) {
    remove_run(folder);
  } else if (entries.size() > 1 || !names_of_checkpoints(folder / kCheckpoints).empty()) {
    make_folders(folder / kMoving);
    for (const std::string& name : entries) {
      if (name == kCheckpoints) {
        set_checkpoints_aside(folder, folder / kMoving);
      } else {
        move_entry(folder, folder / kMoving, name);
      }
    }
    move_durably(folder / kMoving, folder / kReplaced);
  }
  for (const std::string& name : list_names(folder)) {
    if (name.ends_with(kTemporarySuffix) && OwnNames(folder).has(name)) remove_tree(folder / name);
  }
  remove_emptied(folder);
  make_folders(folder / kCheckpoints);
}

void remove_replaced_run(const HeldPath& folder) {
  if (!is_set_aside(folder, kReplaced)) return;
  move_durably(folder / kReplaced, folder / kRemoved);
  finish_removal(folder);
}

RestoredRun restore_replaced_run(const HeldPath& folder) {
  if (is_set_aside(folder, kReplaced)) {
    // If the run folder or replaced/ has no checkpoints/, an earlier version was moving the old
    // run's files, and the files in place belong to the old run.
    const bool is_new =
        has_entry(folder / kCheckpoints) && has_entry(folder / kReplaced / kCheckpoints);
    move_durably(folder / kReplaced, folder / (is_new ? kRestoring : kMoving));
  }
  return finish_restoring(folder);
}

RestoredRun recover_replaced_run(const HeldPath& folder) {
  finish_removal(folder);
  const RestoredRun restored = finish_restoring(folder);
  if (restored.any || has_replaced_run(folder)) return restored;
  return restore_replaced_run(folder);
}

}  // namespace dpt
