#pragma once

#include <memory>
#include <optional>

#include "kernels/backend.h"
#include "kernels/cuda/conv/conv_plan.h"
#include "kernels/cuda/runtime/context.h"

namespace dpt {

/// The description's pooling, where it is of the kind that our convolutions make themselves.
std::optional<ConvPool> pool_inside(const Conv2dDesc& desc);

/// As Backend::conv2d. The context must outlive it.
std::unique_ptr<Op> make_cuda_conv2d(const CudaContext& context, const Conv2dDesc& desc);

}  // namespace dpt
