// Checks of CUDA calls: a failure becomes a dpt::Error that names the call and the GPU.
#pragma once

#include <cuda_runtime.h>

#include "kernels/base/error.h"

namespace dpt {

/// Throws ErrorKind::device unless `status` is success. `call` is the name of the function or
/// kernel. A failure of earlier queued work may be reported by any later call.
inline void cuda_check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  int device = -1;
  cudaGetDevice(&device);
  cudaGetLastError();  // Clears the error, unless the context is lost.
  fail(ErrorKind::device, "cuda:{}: {} failed: {} ({})", device, call, cudaGetErrorString(status),
       cudaGetErrorName(status));
}

}  // namespace dpt
