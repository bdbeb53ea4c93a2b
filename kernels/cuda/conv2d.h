#pragma once

#include <memory>

#include "kernels/backend.h"
#include "kernels/cuda/context.h"

namespace dpt {

/// As Backend::conv2d. The context must outlive it.
std::unique_ptr<Op> make_cuda_conv2d(const CudaContext& context, const Conv2dDesc& desc);

}  // namespace dpt
