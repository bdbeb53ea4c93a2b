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

/// Computes backward of a ReLU and of the bias before it in one pass. x holds the gradient of the
/// ReLU's output y, and is overwritten with the gradient of the ReLU's input: 0 where y <= 0,
/// unchanged where y is positive or NaN. Unless `out` is null, it receives the column_sums of the
/// new x, the gradient of the bias. y has the shape and type of x. Needs the scratch of
/// column_sums.
void relu_column_sums(const CudaContext& context, DevPtr x, DevPtr y, DType type, std::int64_t rows,
                      std::int64_t columns, DevPtr out, GradWrite write, DevPtr scratch);

}  // namespace dpt
