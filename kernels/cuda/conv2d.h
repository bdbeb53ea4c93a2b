#pragma once

#include <memory>
#include <optional>

#include "kernels/backend.h"
#include "kernels/cuda/conv/conv_plan.h"
#include "kernels/cuda/runtime/context.h"

namespace dpt {

/// Returns the description's pooling if dpt's convolutions can fuse it.
std::optional<ConvPool> pool_inside(const Conv2dDesc& desc);

}  // namespace dpt
