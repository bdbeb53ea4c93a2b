// Packs of neighbouring elements that a thread loads, processes and stores together, and the kernel
// for elementwise work.
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/common/bf16.h"
#include "kernels/cuda/runtime/context.h"
#include "kernels/cuda/runtime/launch.h"

namespace dpt {

template <class T, int kCount>
struct alignas(sizeof(T) * kCount) Pack {
  T v[kCount];
};

/// Loads a pack. REQUIRES: `from` is aligned to the pack's size.
template <int kCount, class T>
__device__ inline Pack<T, kCount> load_pack(const T* from) {
  return *reinterpret_cast<const Pack<T, kCount>*>(from);
}
template <int kCount, class T>
__device__ inline void store_pack(T* to, const Pack<T, kCount>& pack) {
  *reinterpret_cast<Pack<T, kCount>*>(to) = pack;
}

/// Returns true if every address is null or a multiple of `bytes`.
template <class... Pointers>
bool aligned_to(std::size_t bytes, Pointers... pointers) {
  return ((pointers.address % bytes == 0) && ...);
}

/// Calls body.at<kCount>(first) for elements [first, first + kCount), and at<1> for each remaining
/// element.
template <int kCount, class Body>
__global__ void __launch_bounds__(256) each_pack(Body body, std::int64_t count) {
  for (std::int64_t i = global_thread() * kCount; i < count; i += grid_threads() * kCount) {
    if (i + kCount <= count) {
      body.template at<kCount>(i);
    } else {
      for (std::int64_t k = i; k < count; ++k) body.template at<1>(k);
    }
  }
}

/// Runs `body` over `count` elements, in packs of kCount if `aligned`.
template <int kCount, class Body>
void for_each_pack(const CudaContext& context, std::int64_t count, bool aligned, const Body& body) {
  if (count < 1) return;
  constexpr int kThreads = 256;
  // Eight blocks fill a multiprocessor of any architecture.
  const std::int64_t most = std::int64_t{8} * context.multiprocessors;
  if (aligned) {
    const std::int64_t packs = ceil_div(count, kCount);
    launch(each_pack<kCount, Body>, blocks_for(packs, kThreads, most), kThreads, 0, context.stream,
           body, count);
  } else {
    launch(each_pack<1, Body>, blocks_for(count, kThreads, most), kThreads, 0, context.stream, body,
           count);
  }
}

}  // namespace dpt
