// What a linear layer does beside its matrix products.
#pragma once

#include "kernels/backend.h"
#include "kernels/cuda/context.h"

namespace dpt {

/// y = sums + bias, then optional ReLU (which lets NaN through), rounded to `type`. sums
/// (rows, columns) and bias (columns) fp32, y (rows, columns).
void add_bias(const CudaContext& context, DevPtr sums, DevPtr bias, bool relu, DevPtr y, DType type,
              std::int64_t rows, std::int64_t columns);

/// Bytes of scratch that relu_bias_gradient needs.
std::size_t relu_bias_gradient_scratch(const CudaContext& context, std::int64_t rows,
                                       std::int64_t columns);

/// The gradient in front of a ReLU, in place: dy becomes 0 where y is not above 0 (or NaN). And
/// dbias (columns), unless null: = or += the sums of that over the rows. dy and y (rows, columns)
/// of `type`, dbias fp32. The order of every sum is fixed by the shape.
void relu_bias_gradient(const CudaContext& context, DevPtr dy, DevPtr y, DType type,
                        std::int64_t rows, std::int64_t columns, DevPtr dbias, GradWrite write,
                        DevPtr scratch);

}  // namespace dpt
