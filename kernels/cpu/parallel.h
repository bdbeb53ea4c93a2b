// Loops over a replica's own team of threads.
#pragma once

#include <cstdint>

#include "kernels/cpu/denormals.h"

namespace dpt {

/// Calls body(i) for 0 <= i < count, each thread a contiguous range. A team of one never enters
/// OpenMP, which would allocate a team for it in every call.
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

}  // namespace dpt
