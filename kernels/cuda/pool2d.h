#pragma once

#include <memory>

#include "kernels/backend.h"
#include "kernels/cuda/runtime/context.h"

namespace dpt {

/// As Backend::pool2d. The context must outlive it. With `behind_relu` x is the output of a ReLU
/// that was fused away, and backward gives the gradient in front of that ReLU.
std::unique_ptr<Op> make_cuda_pool2d(const CudaContext& context, const Pool2dDesc& desc,
                                     bool behind_relu = false);

}  // namespace dpt
