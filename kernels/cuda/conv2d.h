#pragma once

#include <memory>
#include <optional>

#include "kernels/backend.h"
#include "kernels/cuda/conv/conv_plan.h"
#include "kernels/cuda/runtime/context.h"

namespace dpt {

/// The description's pooling, where it is of the kind that our convolutions make themselves.
std::optional<ConvPool> pool_inside(const Conv2dDesc& desc);

}  // namespace dpt
