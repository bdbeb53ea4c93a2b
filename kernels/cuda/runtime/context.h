// State that the kernels of one CUDA backend share.
#pragma once

#include <cuda_runtime.h>

#include <string>

#include "kernels/backend.h"

namespace dpt {

/// CudaContext::partials begins with this many counters of finished blocks. They are zero between
/// kernels: the backend clears them when it makes the memory, the last block when it has come.
inline constexpr unsigned kBlockCounters = 64;

/// Made by the backend, which outlives its kernels. All work goes to `stream`.
struct CudaContext {
  int device = 0;
  cudaStream_t stream = nullptr;
  int multiprocessors = 1;
  int compute_major = 0, compute_minor = 0;
  std::size_t shared_bytes_per_block = 0;  ///< most dynamic shared memory that can be allowed
  std::string name;                        ///< "cuda:0"
  std::string gpu;                         ///< "NVIDIA H200"
  BackendOptions options;
  // Shared by every kernel that runs on the stream, one after another, and never resized: what
  // cuBLASLt and cuDNN are given, and partial sums of reductions.
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
  void* partials = nullptr;
  std::size_t partials_bytes = 0;
};

/// The context of a backend that is a GPU; null for others.
const CudaContext* cuda_context_of(const Backend& backend);

/// A device address as what it points to.
template <class T>
T* device(DevPtr ptr) {
  return reinterpret_cast<T*>(ptr.address);
}

}  // namespace dpt
