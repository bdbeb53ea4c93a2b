// Copies of constants in device memory, for kernels.
#pragma once

#include <cuda_runtime.h>

#include <vector>

#include "kernels/cuda/runtime/check.h"
#include "kernels/cuda/runtime/context.h"
#include "kernels/cuda/runtime/wait.h"

namespace dpt {

/// Returns a copy of `values` in device memory, complete on return.
inline DeviceMemory device_copy(const CudaContext& context, const std::vector<float>& values) {
  const std::size_t bytes = values.size() * sizeof(float);
  void* memory = nullptr;
  cuda_check(cudaMalloc(&memory, bytes), "cudaMalloc");
  DeviceMemory copy({reinterpret_cast<std::uintptr_t>(memory)}, bytes, [](DevPtr ptr, std::size_t) {
    release_unless_lost(cudaFree, device<void>(ptr));
  });
  // Use the kernels' stream, so that the copy waits for no other stream.
  cuda_check(cudaMemcpyAsync(memory, values.data(), bytes, cudaMemcpyHostToDevice, context.stream),
             "cudaMemcpyAsync");
  wait_for_stream(context, context.stream);
  return copy;
}

}  // namespace dpt
