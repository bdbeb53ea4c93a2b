#include "kernels/devices.h"

#include <algorithm>
#include <charconv>

#include "kernels/base/cpu_features.h"
#include "kernels/base/error.h"
#include "kernels/base/host.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cuda/backend.h"

namespace dpt {
namespace {

constexpr int kMostThreads = 1024;

/// The whole text as a number, or -1.
int to_number(const std::string& text) {
  int value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && text[0] != '-' ? value : -1;
}

std::string cpu_summary() {
  const CpuInfo info = cpu_info();
  return fmt::format("cpu ({} physical core{})", info.physical_allowed,
                     info.physical_allowed == 1 ? "" : "s");
}

/// Throws unless GPU `index` is there and new enough.
void require_cuda(int index) {
  const CudaInfo& cuda = cuda_info();
  if (!cuda.unavailable.empty()) {
    fail(ErrorKind::device, "cuda:{}: no CUDA device: {}; this machine has {}", index,
         cuda.unavailable, cpu_summary());
  }
  const int count = static_cast<int>(cuda.devices.size());
  if (index < count) {
    const CudaDeviceInfo& gpu = cuda.devices[static_cast<std::size_t>(index)];
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

/// That dpt can use; throws where there are others only.
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

const DeviceTraits& DeviceName::traits() const {
  // 1 MiB is half of the second-level cache of today's server cores and all of an older one's. A
  // GPU is the faster the more samples it has at once: 2 GiB leave room for everything else on
  // every GPU with enough memory for such a net.
  static constexpr DeviceTraits kCpu{.noun = "CPU",
                                     .speed_is_threads = true,
                                     .arithmetic_varies = true,
                                     .bf16_is_slow = true,
                                     .overlaps_sums = false,
                                     .pass_bytes = std::int64_t{1} << 20,
                                     .max_samples = 256,
                                     .steps_ahead = 0};
  static constexpr DeviceTraits kGpu{.noun = "GPU",
                                     .speed_is_threads = false,
                                     .arithmetic_varies = false,
                                     .bf16_is_slow = false,
                                     .overlaps_sums = true,
                                     .pass_bytes = std::int64_t{1} << 31,
                                     .max_samples = 16384,
                                     .steps_ahead = 6};
  return kind == Kind::cuda ? kGpu : kCpu;
}

std::string DeviceName::text() const {
  if (kind == Kind::cuda) return fmt::format("cuda:{}", index);
  return threads == 1 ? "cpu" : fmt::format("cpu:{}", threads);
}

DeviceName parse_device(const std::string& text) {
  DeviceName device;
  const std::size_t colon = text.find(':');
  const std::string kind = text.substr(0, colon);
  const bool has_number = colon != std::string::npos;
  const int number = has_number ? to_number(text.substr(colon + 1)) : -1;
  if (kind == "cpu" && !has_number) return device;
  if (kind == "cpu" && number >= 1 && number <= kMostThreads) {
    device.threads = number;
    return device;
  }
  if (kind == "cuda" && number >= 0) {
    device.kind = DeviceName::Kind::cuda;
    device.index = number;
    return device;
  }
  fail(ErrorKind::usage,
       "devices: expected \"auto\", \"cpu\", \"cpu:N\" (N = 1 to {} threads) or \"cuda:N\" (GPU N, "
       "from 0), or \"cuda\" alone, found \"{}\"",
       kMostThreads, text);
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
  info.logical_allowed = limited(std::max<int>(1, static_cast<int>(cpus.size())));
  info.physical_allowed = limited(host_system::physical_cores(cpus));
  info.memory_bytes = host_system::memory().total;
  return info;
}

const CudaInfo& cuda_info() {
  // Asking the driver takes a while, and its answer does not change while a process lives.
  static const CudaInfo info = query_cuda();
  return info;
}

std::vector<std::string> cuda_libraries() {
  return cuda_info().unavailable.empty() ? query_cuda_libraries() : std::vector<std::string>();
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
