// Which devices this process may use, and how their backends are made. The one place that names
// what was built in.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/base/device_name.h"
#include "kernels/cuda_info.h"

namespace dpt {

/// Parses "cpu", "cpu:4", "cuda:0". Throws ErrorKind::usage listing the forms.
DeviceName parse_device(const std::string& text);

/// CPU as available to this process.
struct CpuInfo {
  std::string model;
  std::string maker;               ///< "AMD" or "Intel", for which kernels may differ; else empty
  std::string instruction_set;     ///< widest that oneDNN uses here
  bool bf16 = false;               ///< true if it has bf16 instructions
  int logical_allowed = 1;         ///< by affinity and cgroup quota
  int physical_allowed = 1;        ///< physical cores among them, quota respected; at least 1
  std::uint64_t memory_bytes = 0;  ///< usable, cgroup limit respected
};
CpuInfo cpu_info();

/// Queried once per process. Never throws.
const CudaInfo& cuda_info();

/// "cuDNN 9.19.0", ...: NVIDIA's libraries as they are found here, or why one cannot be used. Opens
/// them, which takes a while; nothing else needs to. Empty without a GPU.
std::vector<std::string> cuda_libraries();

/// Turns `devices:` into names: "cuda" is every GPU that dpt can use; "auto" is the same where
/// there is a GPU, and else one "cpu" per physical core that the process may use; both never more
/// than `samples` (the largest batch). A device that is missing or too old throws ErrorKind::device
/// naming what exists.
std::vector<DeviceName> resolve_devices(const std::vector<std::string>& asked,
                                        std::int64_t samples);

/// Makes the backend in the calling thread, which is the one that will use it.
std::unique_ptr<Backend> make_backend(const DeviceName& device, const BackendOptions& options = {});

/// "oneDNN 2.6.3, CUDA 13.0": for --version and the log.
std::string backends_built_in();

}  // namespace dpt
