// Gradients that a library left apart from where they belong.
#pragma once

#include "kernels/backend.h"
#include "kernels/cuda/runtime/context.h"

namespace dpt {

/// to[i] (= or +=, as `write` says) from[i]; to fp32, from of `type`.
void add_gradient(const CudaContext& context, DevPtr to, DevPtr from, DType type,
                  std::int64_t count, GradWrite write);

}  // namespace dpt
