// Adds gradients that a library wrote to separate memory.
#pragma once

#include "kernels/backend.h"
#include "kernels/cuda/runtime/context.h"

namespace dpt {

/// Sets to[i] to from[i], or adds from[i], according to `write`. `to` is fp32, `from` of `type`.
void add_gradient(const CudaContext& context, DevPtr to, DevPtr from, DType type,
                  std::int64_t count, GradWrite write);

}  // namespace dpt
