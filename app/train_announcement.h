// dpt train, before the first step: what the log and the user learn of the run.
#pragma once

#include "app/train_start.h"
#include "engine/training/job.h"
#include "engine/training/progress.h"
#include "engine/training/run_folder.h"
#include "engine/training/run_log.h"

namespace dpt {

/// Writes the members of the world to the log and for the user (event `processes`), before anything
/// can go wrong with them. Does nothing in a run of one process.
void announce_processes(const Job& job, RunLog& log, Progress& progress);

/// Writes the event `run_start`; says what is trained, where it starts, and what the user should
/// know of it.
void announce(const Job& job, const RunFolder& folder, const TrainStart& start, RunLog& log,
              Progress& progress);

}  // namespace dpt
