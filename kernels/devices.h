// Devices that this process may use, and creation of their backends. Only this part knows which
// backends the program was built with.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/base/device_name.h"
#include "kernels/cuda_info.h"

namespace dpt {

/// Parses "cpu", "cpu:4" or "cuda:0". Throws ErrorKind::usage listing the valid forms.
DeviceName parse_device(const std::string& text);

/// Properties of the CPU, limited to what this process may use.
struct CpuInfo {
  std::string model;
  std::string maker;  ///< "AMD" or "Intel", because their kernels may differ; otherwise empty
  std::string instruction_set;     ///< widest instruction set that oneDNN uses on this CPU
  bool bf16 = false;               ///< true if it has bf16 instructions
  bool bf16_is_faster = false;     ///< true if dpt trains faster in bf16 than in fp32
  int logical_allowed = 1;         ///< logical processors allowed by affinity and cgroup quota
  int physical_allowed = 1;        ///< physical cores among them, within the quota; at least 1
  std::uint64_t memory_bytes = 0;  ///< usable memory, within the cgroup limit
};
CpuInfo cpu_info();

/// Returns the CUDA devices and versions. They are queried once per process. Never throws.
const CudaInfo& cuda_info();

/// Returns the version of each of NVIDIA's libraries on this machine ("cuDNN 9.19.0"), or the
/// reason why it cannot be used. Opens the libraries, which takes a while. Empty without a GPU.
std::vector<std::string> cuda_libraries();

/// Returns the properties by which kernels are chosen, and which therefore decide the bits that a
/// device computes. For a CPU, this is "cpu:4"; for a GPU, its model, compute capability, number of
/// multiprocessors and shared memory. Returns "cuda" for a GPU that this machine lacks.
std::string kind_of(const DeviceName& device);

/// Returns the environment variables that are set and change the arithmetic of NVIDIA's libraries,
/// with their values: "NVIDIA_TF32_OVERRIDE=0".
std::vector<std::string> variables_of_cuda_arithmetic();

/// Returns the settings that, in addition to kind_of, decide the bits that GPUs compute: the
/// versions of cuBLASLt and cuDNN, and variables_of_cuda_arithmetic. Opens the libraries.
std::string cuda_arithmetic();

/// Resolves the entries of `devices:` in a config to device names. "cuda" stands for every GPU that
/// dpt can use. "auto" stands for the same if the machine has a GPU, and otherwise for one "cpu"
/// per physical core that the process may use. Both give at most `samples` devices; `samples` is
/// the size of the largest batch. Throws ErrorKind::device, listing the existing devices, if a
/// device is missing or too old.
std::vector<DeviceName> resolve_devices(const std::vector<std::string>& asked,
                                        std::int64_t samples);

/// Creates the backend. The calling thread must be the one that will use it.
std::unique_ptr<Backend> make_backend(const DeviceName& device, const BackendOptions& options = {});

/// Returns "oneDNN 2.6.3, CUDA 13.0", for --version and the log.
std::string backends_built_in();

}  // namespace dpt
