#pragma once

#include "app/train/train_options.h"

namespace dpt {

int run_train(const TrainOptions& options);

}  // namespace dpt
