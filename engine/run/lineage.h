// Lineage: a run folder holds the checkpoints of one line of descent, and its best belongs to the
// same line. What a start or a resume finds of another line is moved aside, never removed and never
// confused.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/job/job.h"
#include "engine/job/starting_point.h"
#include "engine/run/run_folder.h"
#include "kernels/base/held_path.h"

namespace dpt {

/// Gets a line for the user.
using Notify = std::function<void(const std::string&)>;

/// Makes `folder` the folder of the run that begins at `start`, which was read from the file `from`
/// (empty for a fresh start):
/// - with `overwrite`, the old run is set aside (RunFolder::set_aside);
/// - otherwise checkpoints of later steps, or of another run, are moved to
///   checkpoints/abandoned-N/, log lines to metrics.abandoned.jsonl; a file from elsewhere gets its
///   place in checkpoints/;
/// - best.safetensors becomes the best checkpoint that `start` knows: the file there, or one next
///   to `from`, identified by its checksum. If none is left, or keep_best monitors another value
///   now, `start` gets the best that is known instead;
/// - with policy rollback, the checkpoints that a rollback needs (StartingPoint::ancestors) get
///   their place in checkpoints/ too. With `overwrite` the first save does that.
/// Throws ErrorKind::data when a file cannot be read or moved.
void take_place(const Job& job, RunFolder& folder, const std::string& from, bool overwrite,
                StartingPoint& start, const Notify& notify);

/// After a rollback to `state`: checkpoints of later steps are moved to checkpoints/abandoned-N/,
/// log lines to metrics.abandoned.jsonl (RunLog::reopen!). best.safetensors stays as it is.
void leave_later(RunFolder& folder, const RunState& state, const Notify& notify);

/// The file that holds the best checkpoint of `state`: best.safetensors, which is restored from the
/// checkpoints if another file has taken its place. Throws ErrorKind::data when there is none.
/// `ancestors`: more files that may hold it (StartingPoint::ancestors).
HeldPath find_best(const RunFolder& folder, const RunState& state, const Notify& notify,
                   const std::vector<std::pair<std::int64_t, HeldPath>>& ancestors = {});

}  // namespace dpt
