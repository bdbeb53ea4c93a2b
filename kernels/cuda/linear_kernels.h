// Kernels of a linear layer besides its matrix products.
#pragma once

#include "kernels/backend.h"
#include "kernels/cuda/runtime/context.h"

namespace dpt {

/// y = sums + bias (none where it is null), then optional ReLU (which lets NaN through), rounded to
/// `type`. sums (rows, columns) and bias (columns) fp32, y (rows, columns).
void add_bias(const CudaContext& context, DevPtr sums, DevPtr bias, bool relu, DevPtr y, DType type,
              std::int64_t rows, std::int64_t columns);

}  // namespace dpt
