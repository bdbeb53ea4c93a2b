// Devices and the errors of calls.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "state.h"

namespace emulation {
namespace {

struct ErrorName {
  cudaError_t error;
  const char* name;
  const char* text;
};

constexpr ErrorName kErrors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorCudartUnloading, "cudaErrorCudartUnloading", "driver shutting down"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection",
     "invalid copy direction for memcpy"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorDevicesUnavailable, "cudaErrorDevicesUnavailable",
     "CUDA-capable device(s) is/are busy or unavailable"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice",
     "no kernel image is available for execution on the device"},
    {cudaErrorECCUncorrectable, "cudaErrorECCUncorrectable", "uncorrectable ECC error encountered"},
    {cudaErrorPeerAccessUnsupported, "cudaErrorPeerAccessUnsupported",
     "peer access is not supported between these two devices"},
    {cudaErrorNvlinkUncorrectable, "cudaErrorNvlinkUncorrectable",
     "uncorrectable NVLink error detected during the execution"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorIllegalState, "cudaErrorIllegalState",
     "the operation cannot be performed in the present state"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources",
     "too many resources requested for launch"},
    {cudaErrorLaunchTimeout, "cudaErrorLaunchTimeout", "the launch timed out and was terminated"},
    {cudaErrorPeerAccessAlreadyEnabled, "cudaErrorPeerAccessAlreadyEnabled",
     "peer access is already enabled"},
    {cudaErrorPeerAccessNotEnabled, "cudaErrorPeerAccessNotEnabled",
     "peer access has not been enabled"},
    {cudaErrorAssert, "cudaErrorAssert", "device-side assert triggered"},
    {cudaErrorHostMemoryAlreadyRegistered, "cudaErrorHostMemoryAlreadyRegistered",
     "part or all of the requested memory range is already mapped"},
    {cudaErrorHostMemoryNotRegistered, "cudaErrorHostMemoryNotRegistered",
     "pointer does not correspond to a registered memory region"},
    {cudaErrorHardwareStackError, "cudaErrorHardwareStackError", "hardware stack error"},
    {cudaErrorIllegalInstruction, "cudaErrorIllegalInstruction",
     "an illegal instruction was encountered"},
    {cudaErrorMisalignedAddress, "cudaErrorMisalignedAddress", "misaligned address"},
    {cudaErrorInvalidAddressSpace, "cudaErrorInvalidAddressSpace",
     "operation not supported on global/shared address space"},
    {cudaErrorInvalidPc, "cudaErrorInvalidPc", "invalid program counter"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorCooperativeLaunchTooLarge, "cudaErrorCooperativeLaunchTooLarge",
     "too many blocks in cooperative launch"},
    {cudaErrorNotPermitted, "cudaErrorNotPermitted", "operation not permitted"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorSystemNotReady, "cudaErrorSystemNotReady", "system not yet initialized"},
    {cudaErrorSystemDriverMismatch, "cudaErrorSystemDriverMismatch",
     "system has unsupported display driver / cuda driver combination"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureMerge, "cudaErrorStreamCaptureMerge",
     "operation would result in a merge of separate capture sequences"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched",
     "capture was not ended in the same stream as it began"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined",
     "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
    {cudaErrorStreamCaptureWrongThread, "cudaErrorStreamCaptureWrongThread",
     "attempt to terminate a thread-local capture sequence from another thread"},
    {cudaErrorTimeout, "cudaErrorTimeout", "wait operation timed out"},
    {cudaErrorGraphExecUpdateFailure, "cudaErrorGraphExecUpdateFailure",
     "the graph update was not performed because it included changes which violated constraints"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"}};

bool exists(int device) {
  return device >= 0 && device < settings().devices;
}

}  // namespace

cudaError_t error_by_name(const std::string& name) {
  for (const ErrorName& each : kErrors) {
    if (name == each.name) return each.error;
  }
  throw std::invalid_argument(fmt::format("'{}' is no CUDA error the emulation knows", name));
}

}  // namespace emulation

using namespace emulation;

const char* cudaGetErrorName(cudaError_t error) {
  for (const ErrorName& each : kErrors) {
    if (error == each.error) return each.name;
  }
  return "unrecognized error code";
}
const char* cudaGetErrorString(cudaError_t error) {
  for (const ErrorName& each : kErrors) {
    if (error == each.error) return each.text;
  }
  return "unrecognized error code";
}

cudaError_t cudaPeekAtLastError() {
  const Lock lock(state().mutex);
  const auto& devices = state().devices;
  const auto current = static_cast<std::size_t>(this_thread().device);
  if (current < devices.size() && devices[current].lost != cudaSuccess) {
    return devices[current].lost;
  }
  return this_thread().last_error;
}
cudaError_t cudaGetLastError() {
  const cudaError_t error = cudaPeekAtLastError();
  this_thread().last_error = cudaSuccess;
  return error;
}

cudaError_t cudaGetDeviceCount(int* count) {
  if (count) *count = 0;
  return api("cudaGetDeviceCount", Needs::device, [&](Lock&) {
    if (!count) return cudaErrorInvalidValue;
    *count = settings().devices;
    return cudaSuccess;
  });
}
cudaError_t cudaSetDevice(int device) {
  return api("cudaSetDevice", Needs::device, [&](Lock&) {
    if (!exists(device)) return cudaErrorInvalidDevice;
    this_thread().device = device;
    return cudaSuccess;
  });
}
cudaError_t cudaGetDevice(int* device) {
  return api("cudaGetDevice", Needs::device, [&](Lock&) {
    if (!device) return cudaErrorInvalidValue;
    *device = this_thread().device;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return api("cudaGetDeviceProperties", Needs::device, [&](Lock&) {
    if (!properties) return cudaErrorInvalidValue;
    if (!exists(device)) return cudaErrorInvalidDevice;
    cudaDeviceProp p = {};
    std::strcpy(p.name, "Emulated GPU");
    p.uuid.bytes[0] = static_cast<char>(device + 1);
    p.totalGlobalMem = settings().memory;
    p.sharedMemPerBlock = kSharedPerBlock;
    p.regsPerBlock = p.regsPerMultiprocessor = 65536;
    p.warpSize = 32;
    p.maxThreadsPerBlock = 1024;
    p.maxThreadsDim[0] = p.maxThreadsDim[1] = 1024;
    p.maxThreadsDim[2] = 64;
    p.maxGridSize[0] = 0x7fffffff;
    p.maxGridSize[1] = p.maxGridSize[2] = 65535;
    p.totalConstMem = 65536;
    p.major = settings().compute_major;
    p.minor = settings().compute_minor;
    const std::vector<int>& counts = settings().multiprocessors;
    p.multiProcessorCount = counts[std::min<std::size_t>(device, counts.size() - 1)];
    p.canMapHostMemory = p.concurrentKernels = p.unifiedAddressing = 1;
    p.asyncEngineCount = 3;
    p.pciBusID = device + 1;
    p.memoryBusWidth = 5120;
    p.l2CacheSize = 50 << 20;
    p.maxThreadsPerMultiProcessor = 2048;
    p.sharedMemPerMultiprocessor = kSharedPerProcessor;
    p.sharedMemPerBlockOptin = kSharedOptIn;
    p.maxBlocksPerMultiProcessor = 32;
    p.reservedSharedMemPerBlock = 1024;
    *properties = p;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp p;
  if (const cudaError_t error = cudaGetDeviceProperties(&p, device); error != cudaSuccess) {
    return error;
  }
  return api("cudaDeviceGetAttribute", Needs::device, [&](Lock&) {
    if (!value) return cudaErrorInvalidValue;
    switch (attribute) {
      case cudaDevAttrMaxThreadsPerBlock:
        *value = p.maxThreadsPerBlock;
        break;
      case cudaDevAttrMaxBlockDimX:
        *value = p.maxThreadsDim[0];
        break;
      case cudaDevAttrMaxBlockDimY:
        *value = p.maxThreadsDim[1];
        break;
      case cudaDevAttrMaxBlockDimZ:
        *value = p.maxThreadsDim[2];
        break;
      case cudaDevAttrMaxGridDimX:
        *value = p.maxGridSize[0];
        break;
      case cudaDevAttrMaxGridDimY:
        *value = p.maxGridSize[1];
        break;
      case cudaDevAttrMaxGridDimZ:
        *value = p.maxGridSize[2];
        break;
      case cudaDevAttrMaxSharedMemoryPerBlock:
        *value = kSharedPerBlock;
        break;
      case cudaDevAttrWarpSize:
        *value = p.warpSize;
        break;
      case cudaDevAttrMaxRegistersPerBlock:
        *value = p.regsPerBlock;
        break;
      case cudaDevAttrClockRate:
        *value = 1000000;
        break;
      case cudaDevAttrMultiProcessorCount:
        *value = p.multiProcessorCount;
        break;
      case cudaDevAttrIntegrated:
        *value = 0;
        break;
      case cudaDevAttrComputeMode:
        *value = 0;
        break;
      case cudaDevAttrPciBusId:
        *value = p.pciBusID;
        break;
      case cudaDevAttrPciDeviceId:
        *value = p.pciDeviceID;
        break;
      case cudaDevAttrMemoryClockRate:
        *value = 1000000;
        break;
      case cudaDevAttrGlobalMemoryBusWidth:
        *value = p.memoryBusWidth;
        break;
      case cudaDevAttrL2CacheSize:
        *value = p.l2CacheSize;
        break;
      case cudaDevAttrMaxThreadsPerMultiProcessor:
        *value = p.maxThreadsPerMultiProcessor;
        break;
      case cudaDevAttrAsyncEngineCount:
        *value = p.asyncEngineCount;
        break;
      case cudaDevAttrUnifiedAddressing:
        *value = 1;
        break;
      case cudaDevAttrPciDomainId:
        *value = 0;
        break;
      case cudaDevAttrComputeCapabilityMajor:
        *value = p.major;
        break;
      case cudaDevAttrComputeCapabilityMinor:
        *value = p.minor;
        break;
      case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        *value = kSharedPerProcessor;
        break;
      case cudaDevAttrMaxRegistersPerMultiprocessor:
        *value = p.regsPerMultiprocessor;
        break;
      case cudaDevAttrCooperativeLaunch:
        *value = 0;
        break;
      case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = kSharedOptIn;
        break;
      case cudaDevAttrMaxBlocksPerMultiprocessor:
        *value = p.maxBlocksPerMultiProcessor;
        break;
      default:
        return cudaErrorInvalidValue;
    }
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  return api("cudaDeviceGetPCIBusId", Needs::device, [&](Lock&) {
    if (!text || length < 13) return cudaErrorInvalidValue;
    if (!exists(device)) return cudaErrorInvalidDevice;
    std::snprintf(text, static_cast<std::size_t>(length), "0000:%02X:00.0",
                  static_cast<unsigned>(device + 1) & 0xffU);
    return cudaSuccess;
  });
}

cudaError_t cudaDriverGetVersion(int* version) {
  return api("cudaDriverGetVersion", Needs::nothing, [&](Lock&) {
    if (!version) return cudaErrorInvalidValue;
    *version = CUDART_VERSION;
    return cudaSuccess;
  });
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  return api("cudaRuntimeGetVersion", Needs::nothing, [&](Lock&) {
    if (!version) return cudaErrorInvalidValue;
    *version = CUDART_VERSION;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSynchronize() {
  return api("cudaDeviceSynchronize", Needs::no_capture, [](Lock& lock) {
    const int device = this_thread().device;
    for (const auto& capture : state().captures) {
      if (capture->origin->device != device) continue;
      capture->invalid = true;
      return cudaErrorStreamCaptureUnsupported;
    }
    require_done(run_device(lock, device), "cudaDeviceSynchronize");
    return state().devices.at(device).lost;
  });
}

cudaError_t cudaDeviceReset() {
  return api("cudaDeviceReset", Needs::device, [](Lock&) {
    State& all = state();
    const int device = this_thread().device;
    std::erase_if(all.streams, [&](const auto& each) { return each.second->device == device; });
    std::erase_if(all.events, [&](const auto& each) { return each.second->device == device; });
    std::erase_if(all.captures, [&](const auto& each) { return each->origin->device == device; });
    for (auto& [address, allocation] : all.memory) {
      if (allocation.device != device || allocation.freed) continue;
      allocation.freed = true;
      all.freed.push_back(address);
      all.freed_bytes += allocation.bytes;
    }
    all.devices.at(device) = Device{};
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return api("cudaDeviceCanAccessPeer", Needs::device, [&](Lock&) {
    if (!can) return cudaErrorInvalidValue;
    if (!exists(device) || !exists(peer)) return cudaErrorInvalidDevice;
    *can = device != peer && settings().peers ? 1 : 0;
    return cudaSuccess;
  });
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  return api("cudaDeviceEnablePeerAccess", Needs::context, [&](Lock&) {
    if (flags != 0) return cudaErrorInvalidValue;
    if (!exists(peer) || peer == this_thread().device) return cudaErrorInvalidDevice;
    const bool added = state().devices.at(this_thread().device).peers.insert(peer).second;
    return added ? cudaSuccess : cudaErrorPeerAccessAlreadyEnabled;
  });
}
cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  return api("cudaDeviceDisablePeerAccess", Needs::context, [&](Lock&) {
    if (!exists(peer)) return cudaErrorInvalidDevice;
    return state().devices.at(this_thread().device).peers.erase(peer) > 0
               ? cudaSuccess
               : cudaErrorPeerAccessNotEnabled;
  });
}
