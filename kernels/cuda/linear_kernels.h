// Kernels of a linear layer other than its matrix products.
#pragma once

#include "kernels/backend.h"
#include "kernels/cuda/runtime/context.h"

namespace dpt {

/// Computes y = sums + bias (unless null), then optional ReLU (which passes NaN), rounded to
/// `type`. sums (rows, columns) and bias (columns) are fp32, y is (rows, columns).
void add_bias(const CudaContext& context, DevPtr sums, DevPtr bias, bool relu, DevPtr y, DType type,
              std::int64_t rows, std::int64_t columns);

}  // namespace dpt
