// NVIDIA GPUs as devices. The one header of this folder that others include; a build without CUDA
// has these two functions as well (without_cuda.cpp), which say so.
#pragma once

#include <memory>

#include "kernels/backend.h"
#include "kernels/cuda_info.h"

namespace dpt {

/// GPU `index`. Throws ErrorKind::device with the reason when there is no such GPU or no CUDA.
std::unique_ptr<Backend> make_cuda_backend(int index, const BackendOptions& options);

/// Never throws: what keeps CUDA from working is part of the answer.
CudaInfo query_cuda();

/// Implementation of cuda_libraries of devices.h.
std::vector<std::string> query_cuda_libraries();

/// "CUDA 13.0", or "no CUDA".
std::string cuda_built_in();

}  // namespace dpt
