// Divides the samples of dpt predict into ranges whose lines are written together.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/base/types.h"

namespace dpt {

/// Returns ranges that cover `samples` in order. The ranges do not change which samples share a
/// micro-batch: that depends only on the chunks of 8192 samples and on `eval_batch`, the maximum
/// size of a micro-batch. The first range has only one micro-batch for each of `ranks`, so that
/// lines appear soon. The next ones are larger, up to 1024 samples.
std::vector<Range> prediction_ranges(std::int64_t samples, std::int64_t eval_batch, int ranks);

}  // namespace dpt
