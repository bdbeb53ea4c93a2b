// The values of a config by which TensorBoard can sort runs.
#pragma once

#include "engine/config/train_spec.h"
#include "engine/run/run_log.h"

namespace dpt {

/// Returns numbers, texts and booleans by their paths: seed, batch size, validation split,
/// optimizer, schedule, loss and the training section. Fields that are not set are left out.
Json hyperparameters_of(const TrainSpec& spec);

}  // namespace dpt
