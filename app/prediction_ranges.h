// The samples that dpt predict evaluates together before it writes their lines.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/types.h"

namespace dpt {

/// Returns ranges that cover `samples` in order. Their ends do not change which samples share a
/// micro-batch: that follows from chunks of 8192 samples and from `eval_batch`, the most samples of
/// a micro-batch. The first range has one micro-batch for each of `ranks`; the next are larger, up
/// to 1024 samples, so that lines appear soon.
std::vector<Range> prediction_ranges(std::int64_t samples, std::int64_t eval_batch, int ranks);

}  // namespace dpt
