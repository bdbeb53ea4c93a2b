// Loops over a replica's team of threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/base/denormals.h"
#include "kernels/base/divide.h"

namespace dpt {

/// Calls body(i) for 0 <= i < count; each thread gets a contiguous range. With one thread it does
/// not enter OpenMP, which would allocate a team in every call.
template <class Body>
void parallel_for(int threads, std::int64_t count, const Body& body) {
  if (threads == 1) {
    for (std::int64_t i = 0; i < count; ++i) body(i);
    return;
  }
#pragma omp parallel num_threads(threads)
  {
    flush_denormals();
#pragma omp for schedule(static)
    for (std::int64_t i = 0; i < count; ++i) body(i);
  }
}

/// Calls body(first, end) for ranges that cover `count` elements, each large enough to justify a
/// thread.
template <class Body>
void for_blocks(int threads, std::int64_t count, const Body& body) {
  constexpr std::int64_t kBlock = 4096;
  parallel_for(threads, ceil_div(count, kBlock), [&](std::int64_t block) {
    body(block * kBlock, std::min(count, (block + 1) * kBlock));
  });
}

}  // namespace dpt
