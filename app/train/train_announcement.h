// Announcements of dpt train before the first step, for the log and the user.
#pragma once

#include "app/train/train_start.h"
#include "engine/job/job.h"
#include "engine/run/progress.h"
#include "engine/run/run_folder.h"
#include "engine/run/run_log.h"

namespace dpt {

/// Writes the run's processes to the log (event `processes`) and prints them, before any of them
/// can fail. Does nothing in a run of one process.
void announce_processes(const Job& job, RunLog& log, Progress& progress);

/// Writes the event `run_start`, and prints what is trained, the starting point, and warnings.
void announce(const Job& job, const RunFolder& folder, const TrainStart& start, RunLog& log,
              Progress& progress);

}  // namespace dpt
