// The run that --overwrite replaces: kept in replaced/ until the new one has a checkpoint of its
// own schedule, and brought back from there.
//
// Each step of a change is durable before the next, and the name of the folder says which change
// a crash has interrupted:
//   replaced.moving/     old run, with some files here and the others in place, while they are
//                        set aside or come back: a recovery brings all of them back
//   replaced/            the old run, whole; the files in place are the new run's
//   replaced.restoring/  the old run, whole; the files of the new run in place leave
//   replaced.tmp/        what is being removed
// A rename of the folder is the one step that decides. Where checkpoints/ is a link, perhaps to
// another disk, the link stays and the old checkpoints go to checkpoints/replaced/ on that disk; a
// link replaced/checkpoints leads there.
#pragma once

#include <string>

#include "kernels/base/held_path.h"

namespace dpt {

/// Returns true if the folder holds a complete old run, and a new one with a checkpoint.
bool has_replaced_run(const HeldPath& folder);

/// Returns true if `name` in `folder` is a folder that only dpt has written to: anything else of
/// that name is the user's.
bool is_set_aside(const HeldPath& folder, const char* name);

/// Moves everything of the run in `folder` to replaced/. If that already holds a run, removes the
/// one in `folder` instead: it is a new run that has not got far.
void set_run_aside(const HeldPath& folder);

/// Removes the old run; does nothing if there is none.
void remove_replaced_run(const HeldPath& folder);

/// Throws ErrorKind::usage if a folder of a replaced run holds files of others too: it would be
/// taken for the user's, and the run in it for lost. Throws ErrorKind::data if its checkpoints are
/// on another disk, which is missing.
void check_replaced_run(const HeldPath& folder);

/// Result of bringing back the old run, if there is one. If the new run has checkpoints (or a crash
/// interrupted this move), all its files go to checkpoints/abandoned-N; otherwise, if it has a
/// best, its best weights, log and messages do.
struct RestoredRun {
  bool any = false;       ///< true if a run was brought back
  std::string abandoned;  ///< abandoned-N, if files of the new run are kept
};
RestoredRun restore_replaced_run(const HeldPath& folder);

/// Finishes what a crash has interrupted. The old run comes back unless the new one has a
/// checkpoint.
RestoredRun recover_replaced_run(const HeldPath& folder);

/// Creates a folder for what a run moves aside: abandoned-1, -2, ... in `checkpoints`.
HeldPath make_abandoned_in(const HeldPath& checkpoints);

}  // namespace dpt
