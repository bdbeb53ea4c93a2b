// The run that --overwrite replaces. It is kept in replaced/ until the new one has a checkpoint of
// its own schedule, and can be restored from there.
//
// Each step of a change is durable before the next begins. The name of the folder tells which
// change a crash has interrupted:
//   replaced.moving/     old run, with some files here and the others in place, while it is moved
//                        aside or restored: a recovery restores all of them
//   replaced/            the complete old run; the files in place are the new run's
//   replaced.restoring/  the complete old run; the new run's files in place are being moved away
//   replaced.tmp/        files that are being removed
// The rename of the folder is the step that commits a change. If checkpoints/ is a link, perhaps to
// another disk, the link stays and the old checkpoints go to checkpoints/replaced/ on that disk; a
// link replaced/checkpoints leads there.
#pragma once

#include <string>

#include "kernels/base/held_path.h"

namespace dpt {

/// Returns true if the folder holds a complete old run and a new run with a checkpoint.
bool has_replaced_run(const HeldPath& folder);

/// Returns true if `name` in `folder` is a folder to which only dpt has written. Any other entry of
/// that name is the user's.
bool is_set_aside(const HeldPath& folder, const char* name);

/// Moves all files of the run in `folder` to replaced/. If replaced/ already holds a run, removes
/// the one in `folder` instead: it is an unfinished new run.
void set_run_aside(const HeldPath& folder);

/// Removes the old run; does nothing if there is none.
void remove_replaced_run(const HeldPath& folder);

/// Throws ErrorKind::usage if a folder of a replaced run also holds foreign files: the folder would
/// be taken for the user's, and the run in it would count as lost. Throws ErrorKind::data if the
/// run's checkpoints are on another disk and that disk is missing.
void check_replaced_run(const HeldPath& folder);

/// Result of restoring the old run, if any. If the new run has checkpoints (or a crash interrupted
/// this move), all its files go to checkpoints/abandoned-N. Otherwise, if it has best
/// weights, only these, its log and its messages go there.
struct RestoredRun {
  bool any = false;       ///< true if a run was restored
  std::string abandoned;  ///< abandoned-N, if it holds files of the new run
};
RestoredRun restore_replaced_run(const HeldPath& folder);

/// Completes what a crash has interrupted. Restores the old run unless the new one has a
/// checkpoint.
RestoredRun recover_replaced_run(const HeldPath& folder);

/// Creates a folder in `checkpoints` for files that a run moves aside: abandoned-1, -2, ...
HeldPath make_abandoned_in(const HeldPath& checkpoints);

}  // namespace dpt
