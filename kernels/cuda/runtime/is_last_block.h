// Sums over a whole grid in one kernel: every block stores a partial sum, and the block that
// finishes last adds them up in a fixed order. The result does not depend on which block that is.
#pragma once

#include <cassert>
#include <cstddef>

#include "kernels/cuda/runtime/context.h"
#include "kernels/cuda/runtime/launch.h"

namespace dpt {

inline unsigned* block_counters(const CudaContext& context) {
  return static_cast<unsigned*>(context.partials);
}
/// Returns the memory after the counters, for `count` partial sums.
template <class T>
T* partial_sums(const CudaContext& context, [[maybe_unused]] std::size_t count) {
  constexpr std::size_t kCounterBytes = kBlockCounters * sizeof(unsigned);
  assert(kCounterBytes + count * sizeof(T) <= context.partials_bytes);
  return reinterpret_cast<T*>(static_cast<std::byte*>(context.partials) + kCounterBytes);
}

/// Returns true in the block that arrives last. All threads of all `blocks` blocks call it after
/// writing their partial sums. The last block may then read (__ldcg) the sums of the others.
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
