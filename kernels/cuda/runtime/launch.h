// Kernel launches, and helpers that every kernel needs. For .cu files only.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <utility>

#include "kernels/base/divide.h"
#include "kernels/cuda/runtime/check.h"

namespace dpt {

/// Queues kernel<<<grid, block, shared_bytes, stream>>>(args...). Dynamic shared memory above 48
/// KiB must be allowed once in advance (allow_shared_memory).
template <class... Params, class... Args>
void launch(void (*kernel)(Params...), dim3 grid, dim3 block, std::size_t shared_bytes,
            cudaStream_t stream, Args&&... args) {
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  cuda_check(cudaLaunchKernelEx(&config, kernel, static_cast<Params>(std::forward<Args>(args))...),
             "a kernel launch");
}

template <class... Params>
void allow_shared_memory(void (*kernel)(Params...), std::size_t bytes) {
  cuda_check(
      cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                           cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
      "cudaFuncSetAttribute(MaxDynamicSharedMemorySize)");
}

/// Returns the block's dynamic shared memory, 16-byte aligned.
template <class T>
__device__ inline T* dynamic_shared() {
#ifdef __CUDACC__
  extern __shared__ __align__(16) unsigned char dpt_dynamic_shared_bytes[];
  return reinterpret_cast<T*>(dpt_dynamic_shared_bytes);
#else
  return static_cast<T*>(emulation::dynamic_shared_memory());
#endif
}

/// Returns the number of blocks of `block` threads that cover `count` elements, at most `most`. If
/// these are too few, the kernel strides.
inline unsigned blocks_for(std::int64_t count, int block, std::int64_t most = 1 << 16) {
  const std::int64_t blocks = ceil_div(count, block);
  return static_cast<unsigned>(blocks < 1 ? 1 : blocks < most ? blocks : most);
}

/// Return this thread's index in a one-dimensional grid, and the grid's number of threads.
__device__ inline std::int64_t global_thread() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline std::int64_t grid_threads() {
  return static_cast<std::int64_t>(gridDim.x) * blockDim.x;
}

}  // namespace dpt
