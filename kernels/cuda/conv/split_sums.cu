#include "kernels/cuda/conv/split_sums.h"

#include "kernels/cuda/runtime/launch.h"

namespace dpt {
namespace {

constexpr int kSumColumns = 32, kSumRows = 8;

/// Computes dweight and dbias from the splits' parts (splits, channels, columns). A block handles
/// 32 elements: each of its eight rows of threads adds every eighth part, and the rows are then
/// added in order.
__global__ void sum_splits_kernel(const float* parts, int splits, std::int64_t elements,
                                  int columns, int taps, float* dweight, float* dbias, bool add) {
  __shared__ float sums[kSumRows][kSumColumns];
  const std::int64_t at =
      static_cast<std::int64_t>(blockIdx.x) * kSumColumns + static_cast<int>(threadIdx.x);
  float sum = 0;
  if (at < elements) {
#pragma unroll 4
    for (int split = static_cast<int>(threadIdx.y); split < splits; split += kSumRows) {
      sum += parts[split * elements + at];
    }
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || at >= elements) return;
  for (int row = 1; row < kSumRows; ++row) sum += sums[row][threadIdx.x];
  const std::int64_t channel = at / columns, column = at - channel * columns;
  if (column == taps && !dbias) return;
  float& to = column < taps ? dweight[channel * taps + column] : dbias[channel];
  to = add ? to + sum : sum;
}

}  // namespace

void sum_splits(const CudaContext& context, int parts, std::int64_t channels, int columns, int taps,
                float* dweight, float* dbias, GradWrite write) {
  const std::int64_t elements = channels * columns;
  launch(sum_splits_kernel, static_cast<unsigned>(ceil_div(elements, kSumColumns)),
         dim3(kSumColumns, kSumRows), 0, context.stream,
         static_cast<const float*>(context.workspace), parts, elements, columns, taps, dweight,
         dbias, write == GradWrite::add);
}

}  // namespace dpt
