// Device and pinned memory, and the copies between them.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "state.h"

namespace emulation {
namespace {

// A border around every allocation reveals writes beyond its ends and makes reads there return
// NaNs. AddressSanitizer detects more, but only beyond the ends of malloc's memory, so its builds
// have no borders.
constexpr std::size_t kAlignment = 256;
#if defined(__SANITIZE_ADDRESS__)
constexpr std::size_t kGuardBytes = 0;
#else
constexpr std::size_t kGuardBytes = 256;
#endif
constexpr std::size_t kKeepFreedBytes = 16 << 20;

unsigned char* bytes_at(std::uintptr_t address) {
  return reinterpret_cast<unsigned char*>(address);
}

cudaError_t allocate(void** pointer, std::size_t bytes, int device) {
  const std::size_t whole = bytes + 2 * kGuardBytes;
  void* memory = std::aligned_alloc(kAlignment, (whole + kAlignment - 1) / kAlignment * kAlignment);
  if (!memory) return cudaErrorMemoryAllocation;
  std::memset(memory, kPoison, whole);
  const std::uintptr_t address = reinterpret_cast<std::uintptr_t>(memory) + kGuardBytes;
  state().memory[address] = {bytes, device, false};
  *pointer = bytes_at(address);
  return cudaSuccess;
}

/// Releases freed memory, the oldest first, until at most `keep` bytes of it are left.
void release_freed(std::size_t keep) {
  State& all = state();
  while (all.freed_bytes > keep) {
    const auto found = all.memory.find(all.freed.front());
    all.freed.pop_front();
    all.freed_bytes -= found->second.bytes;
    std::free(bytes_at(found->first) - kGuardBytes);
    all.memory.erase(found);
  }
}

cudaError_t release(void* pointer, bool host) {
  State& all = state();
  const auto found = all.memory.find(reinterpret_cast<std::uintptr_t>(pointer));
  if (found == all.memory.end() || found->second.freed || (found->second.device == kHost) != host) {
    return cudaErrorInvalidValue;
  }
  Allocation& allocation = found->second;
  allocation.freed = true;
  if (!host) all.devices.at(allocation.device).used -= allocation.bytes;
  std::memset(pointer, kPoison, allocation.bytes);
  all.freed.push_back(found->first);
  all.freed_bytes += allocation.bytes;
  release_freed(kKeepFreedBytes);
  return cudaSuccess;
}

/// Returns the place of one end of a copy: a device, or the host (pinned or not).
int place_of(const void* pointer) {
  const Allocation* memory = find_memory(pointer);
  return memory ? memory->device : kHost;
}

/// Returns true if a copy may access these bytes; on a device, one live allocation must contain all
/// of them.
bool copyable(const void* pointer, std::size_t bytes, int place) {
  if (place != kHost) return in_memory(pointer, bytes, place);
  const Allocation* memory = find_memory(pointer);
  return !memory || in_memory(pointer, bytes, kHost);
}

struct Copy {
  void* to;
  const void* from;
  std::size_t bytes;
  int to_place, from_place;
};

cudaError_t check_copy(const Copy& copy) {
  const bool good = copy.to && copy.from && copyable(copy.to, copy.bytes, copy.to_place) &&
                    copyable(copy.from, copy.bytes, copy.from_place);
  return good ? cudaSuccess : cudaErrorInvalidValue;
}

/// Queues a copy. `staged` keeps the memory at copy.from alive if it is not the caller's.
cudaError_t queue_copy(cudaStream_t handle, const Copy& copy,
                       std::shared_ptr<std::vector<unsigned char>> staged = nullptr) {
  const auto stream = find_stream(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (const cudaError_t error = check_copy(copy); error != cudaSuccess) return error;
  Work work;
  work.type = cudaGraphNodeTypeMemcpy;
  work.run = [copy, staged = std::move(staged), device = stream->device](Lock&) {
    if (check_copy(copy) != cudaSuccess) {
      return lose_device(device, cudaErrorIllegalAddress,
                         "a queued copy ran after its memory had been freed");
    }
    std::memmove(copy.to, copy.from, copy.bytes);
    return cudaSuccess;
  };
  return enqueue(*stream, std::move(work));
}

/// Determines the places of both ends and checks that they match `kind`.
cudaError_t classify(Copy& copy, cudaMemcpyKind kind) {
  copy.to_place = place_of(copy.to);
  copy.from_place = place_of(copy.from);
  const bool to_device = copy.to_place != kHost, from_device = copy.from_place != kHost;
  switch (kind) {
    case cudaMemcpyHostToHost:
      return !to_device && !from_device ? cudaSuccess : cudaErrorInvalidValue;
    case cudaMemcpyHostToDevice:
      return to_device && !from_device ? cudaSuccess : cudaErrorInvalidValue;
    case cudaMemcpyDeviceToHost:
      return !to_device && from_device ? cudaSuccess : cudaErrorInvalidValue;
    case cudaMemcpyDeviceToDevice:
      // Real devices also accept two different devices here, but a program that intends such a copy
      // uses Peer or Default.
      return to_device && copy.to_place == copy.from_place ? cudaSuccess : cudaErrorInvalidValue;
    case cudaMemcpyDefault:
      return cudaSuccess;
  }
  return cudaErrorInvalidMemcpyDirection;
}

cudaError_t queue_set(cudaStream_t handle, void* to, int value, std::size_t bytes) {
  const auto stream = find_stream(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  const auto good = [=] {
    const Allocation* memory = find_memory(to);
    return memory && in_memory(to, bytes, memory->device);
  };
  if (!good()) return cudaErrorInvalidValue;
  Work work;
  work.type = cudaGraphNodeTypeMemset;
  work.run = [=, device = stream->device](Lock&) {
    if (!good()) {
      return lose_device(device, cudaErrorIllegalAddress,
                         "a queued memset ran after its memory had been freed");
    }
    std::memset(to, value, bytes);
    return cudaSuccess;
  };
  return enqueue(*stream, std::move(work));
}

}  // namespace

const Allocation* find_memory(const void* pointer, std::uintptr_t* base) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  auto found = state().memory.upper_bound(address);
  if (found == state().memory.begin()) return nullptr;
  --found;
  if (address - found->first > found->second.bytes) return nullptr;
  if (base) *base = found->first;
  return &found->second;
}

bool in_memory(const void* pointer, std::size_t bytes, int device) {
  std::uintptr_t base = 0;
  const Allocation* memory = find_memory(pointer, &base);
  if (!memory || memory->freed || memory->device != device) return false;
  return reinterpret_cast<std::uintptr_t>(pointer) - base + bytes <= memory->bytes;
}

void forget_all_memory() {
  State& all = state();
  for (auto& [address, allocation] : all.memory) {
    if (allocation.freed) continue;
    allocation.freed = true;
    all.freed.push_back(address);
    all.freed_bytes += allocation.bytes;
  }
  release_freed(0);
}

std::string damaged_memory() {
  for (const auto& [address, allocation] : state().memory) {
    if (allocation.freed) continue;
    const auto whole = [](const unsigned char* guard) {
      return std::all_of(guard, guard + kGuardBytes,
                         [](unsigned char byte) { return byte == kPoison; });
    };
    if (!whole(bytes_at(address) - kGuardBytes)) {
      return fmt::format("a write before an allocation of {} bytes", allocation.bytes);
    }
    if (!whole(bytes_at(address) + allocation.bytes)) {
      return fmt::format("a write past an allocation of {} bytes", allocation.bytes);
    }
  }
  return "";
}

}  // namespace emulation

using namespace emulation;

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
  return api("cudaMalloc", Needs::no_capture, [&](Lock&) {
    if (!pointer) return cudaErrorInvalidValue;
    *pointer = nullptr;
    if (bytes == 0) return cudaSuccess;
    // CUDA rejects a size that overflows when rounded up to whole pages.
    constexpr std::size_t kPage = std::size_t{2} << 20;
    if (bytes > std::numeric_limits<std::size_t>::max() - kPage) return cudaErrorInvalidValue;
    Device& device = state().devices.at(this_thread().device);
    if (bytes > settings().memory - std::min(device.used, settings().memory)) {
      return cudaErrorMemoryAllocation;
    }
    const cudaError_t error = allocate(pointer, bytes, this_thread().device);
    if (error == cudaSuccess) device.used += bytes;
    return error;
  });
}

cudaError_t cudaFree(void* pointer) {
  return api("cudaFree", Needs::no_capture, [&](Lock& lock) {
    if (!pointer) return cudaSuccess;
    const Allocation* memory = find_memory(pointer);
    if (memory && memory->device != kHost) {
      require_done(run_device(lock, memory->device), "cudaFree");
    }
    return release(pointer, false);
  });
}

cudaError_t cudaHostAlloc(void** pointer, std::size_t bytes, unsigned flags) {
  return api("cudaHostAlloc", Needs::no_capture, [&](Lock&) {
    if (!pointer || flags > 7) return cudaErrorInvalidValue;
    *pointer = nullptr;
    return bytes == 0 ? cudaSuccess : allocate(pointer, bytes, kHost);
  });
}
cudaError_t cudaMallocHost(void** pointer, std::size_t bytes) {
  return cudaHostAlloc(pointer, bytes, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void* pointer) {
  return api("cudaFreeHost", Needs::no_capture, [&](Lock& lock) {
    if (!pointer) return cudaSuccess;
    for (int device = 0; device < settings().devices; ++device) {
      require_done(run_device(lock, device), "cudaFreeHost");
    }
    return release(pointer, true);
  });
}

cudaError_t cudaHostGetDevicePointer(void** device_pointer, void* host_pointer, unsigned flags) {
  return api("cudaHostGetDevicePointer", Needs::context, [&](Lock&) {
    if (!device_pointer || flags != 0 || !in_memory(host_pointer, 0, kHost)) {
      return cudaErrorInvalidValue;
    }
    *device_pointer = host_pointer;
    return cudaSuccess;
  });
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  return api("cudaMemGetInfo", Needs::context, [&](Lock&) {
    if (!free || !total) return cudaErrorInvalidValue;
    const std::size_t used = state().devices.at(this_thread().device).used;
    *total = settings().memory;
    *free = settings().memory - std::min(used, settings().memory);
    return cudaSuccess;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  return api("cudaPointerGetAttributes", Needs::context, [&](Lock&) {
    if (!attributes) return cudaErrorInvalidValue;
    *attributes = {cudaMemoryTypeUnregistered, -2, nullptr, const_cast<void*>(pointer)};
    const Allocation* memory = find_memory(pointer);
    if (!memory || memory->freed || !in_memory(pointer, 1, memory->device)) return cudaSuccess;
    const bool host = memory->device == kHost;
    *attributes = {host ? cudaMemoryTypeHost : cudaMemoryTypeDevice, host ? 0 : memory->device,
                   const_cast<void*>(pointer), host ? const_cast<void*>(pointer) : nullptr};
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return api("cudaMemcpyAsync", Needs::context, [&](Lock&) {
    if (bytes == 0) return cudaSuccess;
    Copy copy{to, from, bytes, kHost, kHost};
    const cudaError_t error = classify(copy, kind);
    return error != cudaSuccess ? error : queue_copy(stream, copy);
  });
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  return api("cudaMemcpy", Needs::no_capture, [&](Lock& lock) {
    if (bytes == 0) return cudaSuccess;
    Copy copy{to, from, bytes, kHost, kHost};
    cudaError_t error = classify(copy, kind);
    if (error != cudaSuccess) return error;
    if (copy.to_place != kHost && copy.from_place == kHost && from && !find_memory(from)) {
      // A copy from pageable memory returns once the memory has been read; the GPU may receive it
      // later.
      const auto* bytes_of_host = static_cast<const unsigned char*>(from);
      auto staged =
          std::make_shared<std::vector<unsigned char>>(bytes_of_host, bytes_of_host + bytes);
      copy.from = staged->data();
      return queue_copy(nullptr, copy, std::move(staged));
    }
    error = queue_copy(nullptr, copy);
    if (error != cudaSuccess) return error;
    // Copies between devices return before they have run.
    if (copy.to_place == kHost || copy.from_place == kHost) {
      require_done(run_stream(lock, find_stream(nullptr)), "cudaMemcpy");
    }
    return state().devices.at(this_thread().device).lost;
  });
}

cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device,
                                std::size_t bytes, cudaStream_t stream) {
  return api("cudaMemcpyPeerAsync", Needs::context, [&](Lock&) {
    if (to_device < 0 || to_device >= settings().devices || from_device < 0 ||
        from_device >= settings().devices) {
      return cudaErrorInvalidDevice;
    }
    return bytes == 0 ? cudaSuccess : queue_copy(stream, {to, from, bytes, to_device, from_device});
  });
}
cudaError_t cudaMemcpyPeer(void* to, int to_device, const void* from, int from_device,
                           std::size_t bytes) {
  return cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, nullptr);
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  return api("cudaMemsetAsync", Needs::context,
             [&](Lock&) { return bytes == 0 ? cudaSuccess : queue_set(stream, to, value, bytes); });
}
cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  return api("cudaMemset", Needs::no_capture, [&](Lock&) {
    return bytes == 0 ? cudaSuccess : queue_set(nullptr, to, value, bytes);
  });
}
