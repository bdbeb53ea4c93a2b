// Column sums of a matrix: the gradients of biases.
#pragma once

#include "kernels/backend.h"
#include "kernels/cuda/runtime/context.h"

namespace dpt {

/// Returns the bytes of scratch that column_sums needs for this shape.
std::size_t column_sums_scratch(const CudaContext& context, std::int64_t rows,
                                std::int64_t columns);

/// Computes out[c] = sum over r of x[r][c], or adds the sum to out[c], according to `write`. x is
/// (rows, columns) of `type`, out is fp32. The order of every sum depends only on the shape.
void column_sums(const CudaContext& context, DevPtr x, DType type, std::int64_t rows,
                 std::int64_t columns, DevPtr out, GradWrite write, DevPtr scratch);

/// Computes the gradients before a ReLU and of the bias before it, in one pass: sets x to 0 where
/// y, the output of the ReLU, is not above 0 (or NaN), then computes column_sums of x unless `out`
/// is null. y has the shape and type of x. Needs the scratch of column_sums.
void relu_column_sums(const CudaContext& context, DevPtr x, DevPtr y, DType type, std::int64_t rows,
                      std::int64_t columns, DevPtr out, GradWrite write, DevPtr scratch);

}  // namespace dpt
