// Sums over the threads of a block. For .cu files only.
#pragma once

#include <cuda_runtime.h>

namespace dpt {

/// Returns the sum over the `kThreads` threads of a block, in a fixed order; valid in thread 0.
template <int kThreads>
__device__ inline double block_sum(double value) {
  __shared__ double sums[kThreads / 32];
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    value += __shfl_down_sync(0xffffffffU, value, static_cast<unsigned>(lanes));
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
  __syncthreads();
  double sum = 0;
  if (threadIdx.x == 0) {
    for (const double part : sums) sum += part;
  }
  return sum;
}

}  // namespace dpt
