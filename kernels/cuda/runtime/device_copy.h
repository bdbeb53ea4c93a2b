// Constants of a kernel in device memory.
#pragma once

#include <cuda_runtime.h>

#include <vector>

#include "kernels/cuda/runtime/check.h"
#include "kernels/cuda/runtime/context.h"

namespace dpt {

/// A copy of `values`, complete when this returns.
inline DeviceMemory device_copy(const CudaContext& context, const std::vector<float>& values) {
  const std::size_t bytes = values.size() * sizeof(float);
  void* memory = nullptr;
  cuda_check(cudaMalloc(&memory, bytes), "cudaMalloc");
  DeviceMemory copy({reinterpret_cast<std::uintptr_t>(memory)}, bytes,
                    [](DevPtr ptr, std::size_t) { cudaFree(device<void>(ptr)); });
  // In the stream of the kernels: it waits for no other one.
  cuda_check(cudaMemcpyAsync(memory, values.data(), bytes, cudaMemcpyHostToDevice, context.stream),
             "cudaMemcpyAsync");
  cuda_check(cudaStreamSynchronize(context.stream), "cudaStreamSynchronize");
  return copy;
}

}  // namespace dpt
