// Lineage: a run folder holds the checkpoints of one line of descent, and its best belongs to the
// same line. A start or a resume moves files of another line aside. It never removes or mixes them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/job/job.h"
#include "engine/job/starting_point.h"
#include "engine/run/run_folder.h"
#include "kernels/base/held_path.h"

namespace dpt {

/// Receives a line for the user.
using Notify = std::function<void(const std::string&)>;

/// Makes `folder` the folder of the run that begins at `start`, which was read from the file `from`
/// (empty for a fresh start):
/// - with `overwrite`, the old run is moved aside (RunFolder::set_aside);
/// - otherwise, checkpoints of later steps or of another run are moved to checkpoints/abandoned-N/,
///   and such log lines to metrics.abandoned.jsonl. A file from elsewhere is copied to
///   checkpoints/;
/// - best.safetensors becomes the best checkpoint that `start` knows: the file already there, or
///   one next to `from`, identified by its checksum. If no such file is left, or if keep_best now
///   monitors another value, the best known checkpoint is recorded in `start`;
/// - with policy rollback, the checkpoints that a rollback needs (StartingPoint::ancestors) are
///   copied to checkpoints/ too. With `overwrite` the first save does that.
/// Throws ErrorKind::data if a file cannot be read or moved.
void take_place(const Job& job, RunFolder& folder, const std::string& from, bool overwrite,
                StartingPoint& start, const Notify& notify);

/// Moves everything about later steps aside in a rollback to `state`: checkpoints to
/// checkpoints/abandoned-N/ and log lines to metrics.abandoned.jsonl (call RunLog::reopen
/// afterwards). best.safetensors stays unchanged.
void leave_later(RunFolder& folder, const RunState& state, const Notify& notify);

/// Returns best.safetensors, which holds the best checkpoint of `state`. If another file has taken
/// its place, first restores it from the checkpoints or from `ancestors`
/// (StartingPoint::ancestors). Throws ErrorKind::data if the best checkpoint is not found.
HeldPath find_best(const RunFolder& folder, const RunState& state, const Notify& notify,
                   const std::vector<std::pair<std::int64_t, HeldPath>>& ancestors = {});

}  // namespace dpt
