// NVIDIA GPUs as devices. Other folders include only this header. In a build without CUDA,
// without_cuda.cpp defines its functions, which report that CUDA is missing.
#pragma once

#include <cstddef>
#include <memory>

#include "kernels/backend.h"
#include "kernels/cuda_info.h"

namespace dpt {

/// Size of the workspace of cuBLASLt and cuDNN. This is cuBLASLt's default on current GPUs; cuDNN's
/// plans that need more are not used.
inline constexpr std::size_t kWorkspaceBytes = std::size_t{64} << 20;

/// Creates the backend of GPU `index`. Throws ErrorKind::device with the reason if the GPU or CUDA
/// is missing.
std::unique_ptr<Backend> make_cuda_backend(int index, const BackendOptions& options);

/// Returns the CUDA devices and versions. Never throws: the result contains the reason if CUDA does
/// not work.
CudaInfo query_cuda();

/// Implements cuda_libraries (devices.h).
std::vector<std::string> query_cuda_libraries();

/// Returns the CUDA version of the build: "CUDA 13.0", or "no CUDA".
std::string cuda_built_in();

}  // namespace dpt
