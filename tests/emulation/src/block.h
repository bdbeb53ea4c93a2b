// Runs the blocks and threads of one kernel launch on the calling host thread.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <string>

namespace emulation {

struct GridLaunch {
  dim3 grid, block;
  std::size_t shared_bytes = 0;
  const detail::Kernel* kernel = nullptr;
};

/// Runs the whole grid. Returns an error message, or an empty string on success. Only one host
/// thread may be in this function at a time.
std::string run_grid(const GridLaunch& launch);

/// Stops the running thread of the kernel, which has crashed, so that the race detector sees what
/// the other threads do. When none of them can continue, the kernel fails with this reason.
[[noreturn]] void abandon_thread(const char* why);

}  // namespace emulation
