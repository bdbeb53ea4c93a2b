// Rectified linear unit on the CPU, as an operation and as the flat functions that the fused
// operations use.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/backend.h"

namespace dpt {

/// Sets y = x > 0 ? x : 0, and NaN for NaN; y may be x.
void relu_forward(DType type, DevPtr y, DevPtr x, std::int64_t count, int threads);
/// Sets dx = dy where the forward pass gave y > 0 (or NaN), else 0; dx may be dy.
void relu_backward(DType type, DevPtr dx, DevPtr dy, DevPtr y, std::int64_t count, int threads);

}  // namespace dpt
