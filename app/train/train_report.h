// Messages of dpt train after the run: its results, and how to resume it.
#pragma once

#include <string>
#include <vector>

#include "app/train/train_options.h"
#include "engine/run/run_folder.h"
#include "engine/run/run_log.h"
#include "engine/training/trainer.h"

namespace dpt {

/// Returns the results in the form of summary.json, with measured values only. Gates use them
/// through app/runs/run_results.h.
Json summary_of(const Job& job, const RunFolder& folder, const TrainOutcome& outcome);

/// Returns the words of a command line, quoted for a shell, without secrets
/// (engine/config/secrets.h).
std::string shell_command(const std::vector<std::string>& words);

/// Returns the command that resumes the run of `options` from a checkpoint.
std::string resume_command(const TrainOptions& options, const std::string& checkpoint);

/// Returns how to resume a run that ended early: "run the same command again to resume", or the
/// command.
std::string how_to_resume(const TrainOptions& options, const Job& job, const RunFolder& folder,
                          RunEnd end);
/// Calls why_cores_are_short of process_devices.h for all processes of the run on this machine.
std::string why_cores_are_short(const Job& job);
/// Returns the last line of a complete run: the best epoch, its value, the file with its weights,
/// and the next commands. `summary` is the result of summary_of.
std::string next_steps_line(const RunFolder& folder, const RunState& state, const Json& summary);

/// Returns the last line of a run that began at `start` and ended early: where, why, what was saved
/// and how to continue.
std::string stopped_line(const TrainOptions& options, const Job& job, const RunFolder& folder,
                         const RunState& start, const TrainOutcome& outcome);

}  // namespace dpt
