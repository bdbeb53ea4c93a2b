#pragma once

#include "app/train/train_options.h"

namespace dpt {

/// Runs `train --smoke`: all stages of a run on a few synthetic samples.
int run_smoke(const TrainOptions& options);

}  // namespace dpt
