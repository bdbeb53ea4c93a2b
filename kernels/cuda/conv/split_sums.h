// The last step of a weight gradient whose sum over pixels was split: adds the parts.
#pragma once

#include "kernels/cuda/runtime/context.h"

namespace dpt {

/// Computes dweight (channels, taps) and dbias (channels) from the parts (parts, channels, columns)
/// in the context's workspace, added in order. Column `taps`, if it exists, is dbias, which may be
/// null if it is not needed. `write` selects whether the results overwrite dweight and dbias or are
/// added to them.
void sum_splits(const CudaContext& context, int parts, std::int64_t channels, int columns, int taps,
                float* dweight, float* dbias, GradWrite write);

}  // namespace dpt
