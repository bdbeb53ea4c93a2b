// CUDA devices and CUDA versions of this machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dpt {

/// A GPU of this machine.
struct CudaDeviceInfo {
  std::string name;                ///< "NVIDIA H200"
  std::string uuid;                ///< the same in every process and container
  std::string compute_capability;  ///< "9.0"
  int multiprocessors = 0;
  std::uint64_t shared_bytes_per_block = 0;  ///< maximum that a kernel may request
  std::uint64_t memory_bytes = 0;  ///< total memory; only a backend knows how much is free
  std::vector<int> peers;          ///< indices of the GPUs whose memory it can access
  std::string unusable;            ///< reason why dpt cannot use this GPU, and the fix; empty if it
                                   ///< can
};
struct CudaInfo {
  std::string unavailable;      ///< reason why CUDA is unavailable; the rest may then be empty
  std::string driver, runtime;  ///< CUDA versions of the driver and the runtime, "13.0"
  std::vector<CudaDeviceInfo> devices;
};

}  // namespace dpt
