// The last step of a weight gradient whose sum over pixels was cut: the parts are added.
#pragma once

#include "kernels/cuda/runtime/context.h"

namespace dpt {

/// dweight (channels, taps) and dbias (channels) from the parts (parts, channels, columns) in the
/// context's workspace, in their order; column `taps`, if there is one, is dbias, which may be null
/// if it is not wanted. Overwrites or adds.
void sum_splits(const CudaContext& context, int parts, std::int64_t channels, int columns, int taps,
                float* dweight, float* dbias, GradWrite write);

}  // namespace dpt
