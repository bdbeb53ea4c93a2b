#pragma once

#include "app/train/train_options.h"

namespace dpt {

/// `train --smoke`: the whole way on a few synthetic samples.
int run_smoke(const TrainOptions& options);

}  // namespace dpt
