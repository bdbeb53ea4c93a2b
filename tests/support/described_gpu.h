// GPUs that are only described: cuDNN makes plans for them, on a machine without a GPU.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace dpt::testing {

/// Properties of a GPU, from NVIDIA's data sheets and the table of compute capabilities in the CUDA
/// programming guide.
struct DescribedGpu {
  const char* name;
  int compute_capability;  ///< 10 major + minor
  int multiprocessors;
  int shared_kib_per_block;  ///< maximum that a kernel can request
  int threads_per_multiprocessor, blocks_per_multiprocessor;
  int l2_mib;
  std::int64_t memory_gib;

  /// Returns cuDNN's description of it (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION).
  std::string text() const {
    return fmt::format(
        R"({{"cudaDeviceId": 0, "deviceVer": {}, "driverVer": 13000, "deviceName": "{}",
"maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
"regsPerBlock": 65536, "multiProcessorCount": {}, "warpSize": 32,
"maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": {},
"reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536, "maxCtasPerSM": {},
"maxThreadsPerBlock": 1024, "maxThreadsPerSM": {}, "pciDeviceId": 0, "isTccDriver": 0,
"supportCoopLaunch": 1, "totalGlobalMem": {}, "smClockRateKHz": 1400000,
"memClockRateKHz": 1500000, "l2CacheSize": {}}})",
        10 * compute_capability, name, multiprocessors, 1024 * shared_kib_per_block,
        blocks_per_multiprocessor, threads_per_multiprocessor, memory_gib << 30, l2_mib << 20);
  }
};

inline constexpr DescribedGpu kA100{"NVIDIA A100-SXM4-80GB", 80, 108, 163, 2048, 32, 40, 80};
inline constexpr DescribedGpu kH200{"NVIDIA H200", 90, 132, 227, 2048, 32, 50, 141};

/// One GPU for each architecture for which a release has code.
inline constexpr DescribedGpu kDescribedGpus[] = {
    kA100,
    {"NVIDIA GeForce RTX 3090", 86, 82, 99, 1536, 16, 6, 24},
    {"NVIDIA GeForce RTX 4090", 89, 128, 99, 1536, 24, 72, 24},
    kH200,
    {"NVIDIA B200", 100, 148, 227, 2048, 32, 126, 180},
    {"NVIDIA GeForce RTX 5090", 120, 170, 99, 1536, 24, 96, 32},
};

}  // namespace dpt::testing
