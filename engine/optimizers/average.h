// The exponential moving average of train.ema, as a pass over the flat buffers after each update.
#pragma once

#include <cstdint>

#include "kernels/flat.h"

namespace dpt {

/// Of `floats` parameters and running statistics; `counters`, a part of them, are not averaged.
OptimizerDesc average_desc(std::int64_t floats, Range counters);

/// What of the average remains after update number `update`, counted from 1:
/// min(decay, (1 + update) / (10 + update)), so that the initial weights are soon forgotten
/// (as tf.train.ExponentialMovingAverage does with num_updates).
double average_decay(double decay, std::int64_t update);
UpdateStep average_step(double decay, std::int64_t update);

}  // namespace dpt
