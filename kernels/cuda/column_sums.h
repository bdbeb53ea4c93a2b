// Sums over the rows of a matrix: the gradients of biases.
#pragma once

#include "kernels/backend.h"
#include "kernels/cuda/runtime/context.h"

namespace dpt {

/// Bytes of scratch that column_sums needs for this shape.
std::size_t column_sums_scratch(const CudaContext& context, std::int64_t rows,
                                std::int64_t columns);

/// out[c] (= or +=, as `write` says) sum over r of x[r][c], x (rows, columns) of `type`, out fp32.
/// The order of every sum is fixed by the shape.
void column_sums(const CudaContext& context, DevPtr x, DType type, std::int64_t rows,
                 std::int64_t columns, DevPtr out, GradWrite write, DevPtr scratch);

/// The gradients in front of a ReLU and of the bias before it, in one pass: x becomes 0 where y,
/// the output of the ReLU, is not above 0 (or NaN); then column_sums of that, unless `out` is null.
/// y as x. The same scratch.
void relu_column_sums(const CudaContext& context, DevPtr x, DevPtr y, DType type, std::int64_t rows,
                      std::int64_t columns, DevPtr out, GradWrite write, DevPtr scratch);

}  // namespace dpt
