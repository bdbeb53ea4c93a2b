#include "kernels/devices.h"

#include <algorithm>
#include <cstdlib>

#include "kernels/base/cpu_features.h"
#include "kernels/base/error.h"
#include "kernels/base/host.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cuda/backend.h"

namespace dpt {
namespace {

std::string cpu_summary() {
  const CpuInfo info = cpu_info();
  return fmt::format("cpu ({} physical core{})", info.physical_allowed,
                     info.physical_allowed == 1 ? "" : "s");
}

/// Throws unless GPU `index` exists and is new enough.
void require_cuda(int index) {
  const CudaInfo& cuda = cuda_info();
  if (!cuda.unavailable.empty()) {
    fail(ErrorKind::device, "cuda:{}: no CUDA device: {}; this machine has {}", index,
         cuda.unavailable, cpu_summary());
  }
  const int count = static_cast<int>(cuda.devices.size());
  if (index < count) {
    const CudaDeviceInfo& gpu = cuda.devices[index];
    if (gpu.unusable.empty()) return;
    fail(ErrorKind::device, "cuda:{}: {}", index, gpu.unusable);
  }
  std::string gpus = "cuda:0";
  if (count > 1) gpus += fmt::format(" to cuda:{}", count - 1);
  fail(ErrorKind::device, "cuda:{}: no such CUDA device; this machine has {} and {}", index, gpus,
       cpu_summary());
}

std::vector<DeviceName> at_most(std::vector<DeviceName> devices, std::int64_t samples) {
  const auto most = static_cast<std::size_t>(std::max<std::int64_t>(1, samples));
  if (devices.size() > most) devices.resize(most);
  return devices;
}

std::vector<DeviceName> every_cpu() {
  return std::vector<DeviceName>(static_cast<std::size_t>(cpu_info().physical_allowed));
}

/// Returns all GPUs that dpt can use. Throws if the machine has GPUs, but dpt can use none of them.
std::vector<DeviceName> every_gpu() {
  std::vector<DeviceName> gpus;
  const std::vector<CudaDeviceInfo>& devices = cuda_info().devices;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (!devices[i].unusable.empty()) continue;
    DeviceName& gpu = gpus.emplace_back();
    gpu.kind = DeviceName::Kind::cuda;
    gpu.index = static_cast<int>(i);
  }
  if (gpus.empty()) require_cuda(0);
  return gpus;
}

}  // namespace

DeviceName parse_device(const std::string& text) {
  if (const auto device = read_device_name(text)) return *device;
  fail(ErrorKind::usage,
       "devices: expected \"auto\", \"cpu\", \"cpu:N\" (N = 1 to {} threads) or \"cuda:N\" (GPU N, "
       "from 0), or \"cuda\" alone, found \"{}\"",
       DeviceName::kMaxThreads, text);
}

CpuInfo cpu_info() {
  const std::vector<int> cpus = host_system::allowed_cpus();
  const int quota = host_system::quota_cpus();
  const auto limited = [&](int count) { return quota > 0 ? std::min(count, quota) : count; };
  CpuInfo info;
  info.model = host_system::processor_model();
  const CpuFeatures features = CpuFeatures::detect();
  if (features.amd) info.maker = "AMD";
  if (features.intel) info.maker = "Intel";
  info.instruction_set = onednn::instruction_set();
  info.bf16 = onednn::has_bf16();
  // AMD's processors multiply pairs of bf16 numbers at twice the rate of fp32; Intel's do not.
  info.bf16_is_faster = info.bf16 && features.avx512_bf16 && features.amd;
  info.logical_allowed = limited(std::max<int>(1, static_cast<int>(cpus.size())));
  info.physical_allowed = limited(host_system::physical_cores(cpus));
  info.memory_bytes = host_system::memory().total;
  return info;
}

const CudaInfo& cuda_info() {
  // Querying the driver takes a while, and its answer does not change during the process.
  static const CudaInfo info = query_cuda();
  return info;
}

std::vector<std::string> cuda_libraries() {
  return cuda_info().unavailable.empty() ? query_cuda_libraries() : std::vector<std::string>();
}

std::string kind_of(const DeviceName& device) {
  if (device.kind != DeviceName::Kind::cuda) return device.text();
  const std::vector<CudaDeviceInfo>& gpus = cuda_info().devices;
  const auto index = static_cast<std::size_t>(device.index);
  if (index >= gpus.size()) return "cuda";
  const CudaDeviceInfo& gpu = gpus[index];
  return fmt::format("{} ({}, {} multiprocessors, {} KiB of shared memory)", gpu.name,
                     gpu.compute_capability, gpu.multiprocessors,
                     gpu.shared_bytes_per_block / 1024);
}

std::vector<std::string> variables_of_cuda_arithmetic() {
  std::vector<std::string> set;
  for (const char* name :
       {"NVIDIA_TF32_OVERRIDE", "CUBLAS_EMULATE_SINGLE_PRECISION", "CUBLAS_EMULATION_STRATEGY"}) {
    if (const char* value = std::getenv(name)) set.push_back(fmt::format("{}={}", name, value));
  }
  return set;
}

std::string cuda_arithmetic() {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  static const std::vector<std::string> libraries = cuda_libraries();
  for (const std::string& library : libraries) {
    // Leave out NCCL, which exact mode does not use.
    if (library.starts_with("cuBLASLt ") || library.starts_with("cuDNN ")) add(library);
  }
  for (const std::string& variable : variables_of_cuda_arithmetic()) add(variable);
  return text;
}

std::vector<DeviceName> resolve_devices(const std::vector<std::string>& asked,
                                        std::int64_t samples) {
  if (asked.empty()) {
    fail(ErrorKind::usage,
         "devices: expected at least one device or \"auto\", found an empty list");
  }
  for (const char* all : {"auto", "cuda"}) {
    if (std::find(asked.begin(), asked.end(), all) == asked.end()) continue;
    if (asked.size() > 1) {
      fail(ErrorKind::usage,
           "devices: \"{}\" must be the only entry, found it in a list of {}; name the devices "
           "instead",
           all, asked.size());
    }
    const bool gpus = all == std::string("cuda") || !cuda_info().devices.empty();
    return at_most(gpus ? every_gpu() : every_cpu(), samples);
  }
  std::vector<DeviceName> devices;
  for (const std::string& text : asked) {
    const DeviceName device = parse_device(text);
    if (device.kind == DeviceName::Kind::cuda) require_cuda(device.index);
    devices.push_back(device);
  }
  return devices;
}

std::unique_ptr<Backend> make_backend(const DeviceName& device, const BackendOptions& options) {
  if (device.kind == DeviceName::Kind::cuda) {
    require_cuda(device.index);
    return make_cuda_backend(device.index, options);
  }
  return make_cpu_backend(device.threads);
}

std::string backends_built_in() {
  return onednn::version() + ", " + cuda_built_in();
}

}  // namespace dpt
