// Averages of the weights, computed by a pass over the flat buffers after each update (train.ema)
// or after an epoch (train.swa).
#pragma once

#include <cstdint>

#include "engine/config/train_spec.h"
#include "kernels/flat.h"

namespace dpt {

/// Returns the pass that averages the first `floats` of the flat buffers: parameters and running
/// statistics, but not the counters after them.
OptimizerDesc average_desc(std::int64_t floats);

/// Returns the weight of the old average in update number `update`, counted from 1. It is
/// min(decay, (1 + update) / (10 + update)), so that the initial weights are soon forgotten
/// (tf.train.ExponentialMovingAverage does the same with num_updates).
double average_decay(double decay, std::int64_t update);

/// Returns the number of epochs that train.swa has averaged after `epochs` epochs.
std::int64_t epochs_to_average(const SwaSpec& swa, std::int64_t epochs);

/// Returns the constants of a pass that moves the average toward the weights by the fraction `part`
/// of the difference.
UpdateStep average_step(double part);

}  // namespace dpt
