// The time of day on a device.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace dpt {

/// Returns the time in nanoseconds. All multiprocessors share this clock, which advances in steps
/// of up to a microsecond.
__device__ inline std::uint64_t device_time() {
#ifdef __CUDACC__
  std::uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
#else
  return static_cast<std::uint64_t>(clock64());
#endif
}

}  // namespace dpt
