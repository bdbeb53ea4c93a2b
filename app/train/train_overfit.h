// dpt train --overfit N: tests whether the model can memorise N batches.
#pragma once

#include "app/train/start_phase.h"
#include "app/train/train_options.h"
#include "engine/job/job.h"

namespace dpt {

/// Trains on the first batches of `whole` until their loss has fallen far enough. Reads and creates
/// no run folder. Returns the exit code. Throws ErrorKind::requirement if the loss does not fall
/// far enough.
int run_overfit(const TrainOptions& options, const Job& whole, StartPhase& phase);

}  // namespace dpt
