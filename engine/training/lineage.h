// Lines of descent: a run folder holds the checkpoints of one, and its best is of the same. What a
// start or a resume finds of another is moved aside, never removed and never mistaken.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/training/job.h"
#include "engine/training/run_folder.h"
#include "engine/training/trainer.h"

namespace dpt {

/// Gets a line for the user.
using Notify = std::function<void(const std::string&)>;

/// Makes `folder` the folder of the run that begins at `start`, which was read from the file `from`
/// (empty for a fresh start):
/// - with `overwrite`, the old run is set aside (RunFolder::set_aside);
/// - otherwise checkpoints of later steps, or of another run, are moved to
///   checkpoints/abandoned-N/, log lines to metrics.abandoned.jsonl; a file from elsewhere gets its
///   place in checkpoints/;
/// - best.safetensors becomes the best checkpoint that `start` knows: the file there, or one beside
///   `from`, known by its checksum. Where none is left, or keep_best watches something else now,
///   `start` is told what is known to be the best instead.
/// Throws ErrorKind::data when a file cannot be read or moved.
void take_place(const Job& job, RunFolder& folder, const std::string& from, bool overwrite,
                StartingPoint& start, const Notify& notify);

/// After a rollback to `state`: checkpoints of later steps are moved to checkpoints/abandoned-N/,
/// log lines to metrics.abandoned.jsonl (RunLog::reopen!). best.safetensors stays as it is.
void leave_later(const RunFolder& folder, const RunState& state, const Notify& notify);

/// The file that holds the best checkpoint of `state`: best.safetensors, which is made again from
/// the checkpoints where something else has its place. Throws ErrorKind::data when there is none.
std::string find_best(const RunFolder& folder, const RunState& state, const Notify& notify);

}  // namespace dpt
