// Sums over a whole grid in one kernel: every block leaves a partial sum, and the block that comes
// last adds them up in a fixed order. Which block that is changes nothing about the result.
#pragma once

#include <cassert>
#include <cstddef>

#include "kernels/cuda/runtime/context.h"
#include "kernels/cuda/runtime/launch.h"

namespace dpt {

inline unsigned* block_counters(const CudaContext& context) {
  return static_cast<unsigned*>(context.partials);
}
/// The memory after the counters, for `count` partial sums.
template <class T>
T* partial_sums(const CudaContext& context, [[maybe_unused]] std::size_t count) {
  constexpr std::size_t kCounterBytes = kBlockCounters * sizeof(unsigned);
  assert(kCounterBytes + count * sizeof(T) <= context.partials_bytes);
  return reinterpret_cast<T*>(static_cast<std::byte*>(context.partials) + kCounterBytes);
}

/// Called by all threads of `blocks` blocks after they wrote their partial sums: true for the block
/// that comes last, which may then read (__ldcg) what the others wrote.
__device__ inline bool is_last_block(unsigned* counter, unsigned blocks) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(counter, 1U) == blocks - 1;
    if (last) *counter = 0;
  }
  __syncthreads();
  if (last) __threadfence();
  return last;
}

}  // namespace dpt
