// CUDA devices and versions of this machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dpt {

/// A GPU of this machine.
struct CudaDeviceInfo {
  std::string name;                ///< "NVIDIA H200"
  std::string compute_capability;  ///< "9.0"
  int multiprocessors = 0;
  std::uint64_t memory_bytes = 0;  ///< used or not: only a backend knows what is free
  std::vector<int> peers;          ///< GPUs whose memory it can use
  std::string unusable;            ///< why dpt cannot use it, and what would do; empty: it can
};
struct CudaInfo {
  std::string unavailable;      ///< why there is nothing to use; then the rest may be empty
  std::string driver, runtime;  ///< the CUDA versions of both, "13.0"
  std::vector<CudaDeviceInfo> devices;
};

}  // namespace dpt
