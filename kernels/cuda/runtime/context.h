// State that the kernels of one CUDA backend share.
#pragma once

#include <cuda_runtime.h>

#include <set>
#include <string>

#include "kernels/backend.h"

namespace dpt {

/// Number of counters of finished blocks at the beginning of CudaContext::partials. They are zero
/// between kernels: the backend clears them when it allocates the memory, and the last block resets
/// its counter.
inline constexpr unsigned kBlockCounters = 64;

/// State of a GPU backend. The backend owns it and outlives its kernels. All work goes to `stream`.
struct CudaContext {
  int device = 0;
  cudaStream_t stream = nullptr;
  int multiprocessors = 1;
  int compute_major = 0, compute_minor = 0;
  std::size_t shared_bytes_per_block = 0;  ///< maximum dynamic shared memory that can be allowed
  std::string name;                        ///< "cuda:0"
  std::string gpu;                         ///< "NVIDIA H200"
  std::string uuid;                        ///< CudaDeviceInfo::uuid
  BackendOptions options;
  std::set<std::string> avoided;  ///< OpFactory::avoid
  // Memory shared by all kernels that run on the stream, one after another, and never resized: the
  // workspace of cuBLASLt and cuDNN, and partial sums of reductions.
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
  void* partials = nullptr;
  std::size_t partials_bytes = 0;
};

/// Returns the context of a GPU's backend; null for other backends.
const CudaContext* cuda_context_of(const Backend& backend);

/// Returns a device address as a typed pointer.
template <class T>
T* device(DevPtr ptr) {
  return reinterpret_cast<T*>(ptr.address);
}

}  // namespace dpt
