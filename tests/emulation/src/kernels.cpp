// Launches kernels: the checks at the call, and those when the kernel runs.
#include <fmt/format.h>

#include <algorithm>
#include <cfenv>
#include <cstring>

#include "block.h"
#include "program_symbols.h"
#include "state.h"

namespace emulation {
namespace {

constexpr std::size_t kSharedReserved = 1 << 10;

cudaError_t check_shape(const cudaLaunchConfig_t& config, const void* function) {
  const dim3 grid = config.gridDim, block = config.blockDim;
  const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || threads == 0 || threads > 1024 ||
      block.x > 1024 || block.y > 1024 || block.z > 64 || grid.x > 0x7fffffffU || grid.y > 65535 ||
      grid.z > 65535) {
    return cudaErrorInvalidConfiguration;
  }
  const auto allowed = state().dynamic_shared.find(function);
  const std::size_t limit =
      allowed == state().dynamic_shared.end()
          ? kSharedPerBlock
          : std::max(std::size_t{kSharedPerBlock}, std::size_t(allowed->second));
  return config.dynamicSmemBytes > limit ? cudaErrorInvalidValue : cudaSuccess;
}

cudaError_t check_attributes(const cudaLaunchConfig_t& config) {
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const cudaLaunchAttribute& attribute = config.attrs[i];
    switch (attribute.id) {
      case cudaLaunchAttributeIgnore:
      case cudaLaunchAttributePriority:
      case cudaLaunchAttributeProgrammaticStreamSerialization:
        break;
      case cudaLaunchAttributeClusterDimension:
        if (attribute.val.clusterDim.x * attribute.val.clusterDim.y * attribute.val.clusterDim.z !=
            1) {
          return cudaErrorNotSupported;
        }
        break;
      default:
        return cudaErrorNotSupported;
    }
  }
  return cudaSuccess;
}

/// Returns the reason why a kernel of the device may not use the address, or null. `declared` is
/// true if the parameter is declared as a pointer, so that the address must be valid.
const char* refuse_pointer(const void* pointer, int device, bool declared) {
  if (!pointer) return nullptr;
  const Allocation* memory = find_memory(pointer);
  if (!memory) return declared ? "points to memory of the host that is not pinned" : nullptr;
  if (memory->freed) return "points to memory that has been freed";
  if (memory->device == kHost || memory->device == device) return nullptr;
  return state().devices.at(device).peers.contains(memory->device)
             ? nullptr
             : "points to memory of another device, without peer access";
}

std::string check_arguments(const detail::Kernel& kernel, int device) {
  std::size_t index = 0;
  for (const detail::Argument& argument : kernel.arguments()) {
    // Search structs for pointers. It is too unlikely to matter that another word is the address of
    // freed memory by accident.
    for (std::size_t at = 0; at + sizeof(void*) <= argument.bytes; at += sizeof(void*)) {
      const void* pointer = nullptr;
      std::memcpy(&pointer, static_cast<const char*>(argument.address) + at, sizeof pointer);
      if (const char* why = refuse_pointer(pointer, device, argument.pointer)) {
        return fmt::format("argument {} of {} {}", index, function_name(kernel.function()), why);
      }
    }
    ++index;
  }
  return "";
}

/// Gives the thread a GPU's arithmetic, which keeps denormal numbers, until the end of a scope.
class GpuArithmetic {
 public:
  GpuArithmetic() {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);  // also clears FTZ and DAZ, or FPCR.FZ
  }
  GpuArithmetic(const GpuArithmetic&) = delete;
  GpuArithmetic& operator=(const GpuArithmetic&) = delete;
  ~GpuArithmetic() { std::fesetenv(&before_); }

 private:
  std::fenv_t before_{};
};

cudaError_t run_kernel(const GridLaunch& launch, int device) {
  if (const auto failure = take_failure("kernel", device)) {
    if (*failure == kHang) return hang_device(device);
    if (*failure == kSkip) return cudaSuccess;
    return lose_device(device, error_by_name(*failure), "asked-for failure of a kernel");
  }
  if (const std::string why = check_arguments(*launch.kernel, device); !why.empty()) {
    return lose_device(device, cudaErrorIllegalAddress, why);
  }
  const std::string failure_of_grid = [&] {
    const GpuArithmetic scope;
    return run_grid(launch);
  }();
  if (!failure_of_grid.empty()) {
    return lose_device(device, cudaErrorLaunchFailure, failure_of_grid);
  }
  if (const std::string why = damaged_memory(); !why.empty()) {
    return lose_device(device, cudaErrorIllegalAddress,
                       fmt::format("{} by {}", why, function_name(launch.kernel->function())));
  }
  return cudaSuccess;
}

}  // namespace

namespace detail {

cudaError_t launch(const cudaLaunchConfig_t& config, std::shared_ptr<const Kernel> kernel,
                   const char* call) {
  return api(call, Needs::context, [&](Lock&) {
    const auto stream = find_stream(config.stream);
    if (!stream || stream->device != this_thread().device) return cudaErrorInvalidResourceHandle;
    cudaError_t error = check_shape(config, kernel->function());
    if (error == cudaSuccess) error = check_attributes(config);
    if (error != cudaSuccess) return error;
    Work work;
    work.type = cudaGraphNodeTypeKernel;
    work.run = [device = stream->device, kernel, grid = config.gridDim, block = config.blockDim,
                shared = config.dynamicSmemBytes](Lock&) {
      return run_kernel({grid, block, shared, kernel.get()}, device);
    };
    return enqueue(*stream, std::move(work));
  });
}

}  // namespace detail
}  // namespace emulation

using namespace emulation;

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  return api("cudaFuncSetAttribute", Needs::context, [&](Lock&) {
    if (!function) return cudaErrorInvalidDeviceFunction;
    if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) {
      return value >= -1 && value <= 100 ? cudaSuccess : cudaErrorInvalidValue;
    }
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
        value > kSharedOptIn) {
      return cudaErrorInvalidValue;
    }
    state().dynamic_shared[function] = value;
    return cudaSuccess;
  });
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
  return api("cudaFuncGetAttributes", Needs::context, [&](Lock&) {
    if (!attributes) return cudaErrorInvalidValue;
    if (!function) return cudaErrorInvalidDeviceFunction;
    *attributes = {};
    attributes->maxThreadsPerBlock = 1024;
    attributes->numRegs = 32;
    attributes->ptxVersion = attributes->binaryVersion = 90;
    const auto found = state().dynamic_shared.find(function);
    attributes->maxDynamicSharedSizeBytes =
        found == state().dynamic_shared.end() ? kSharedPerBlock : found->second;
    return cudaSuccess;
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function,
                                                          int block_size,
                                                          std::size_t shared_bytes) {
  return api("cudaOccupancyMaxActiveBlocksPerMultiprocessor", Needs::context, [&](Lock&) {
    if (!blocks || block_size <= 0) return cudaErrorInvalidValue;
    if (!function) return cudaErrorInvalidDeviceFunction;
    *blocks = 0;
    if (block_size > 1024 || shared_bytes > std::size_t{kSharedOptIn}) return cudaSuccess;
    const int warps = (block_size + 31) / 32;
    const auto by_shared = static_cast<int>(kSharedPerProcessor / (shared_bytes + kSharedReserved));
    *blocks = std::min({64 / warps, by_shared, 32});
    return cudaSuccess;
  });
}
