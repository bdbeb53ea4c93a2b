// What stands in for kernels/cuda in a build without CUDA.
#include "kernels/cuda/backend.h"
#include "kernels/error.h"

namespace dpt {

std::unique_ptr<Backend> make_cuda_backend(int, const BackendOptions&) {
  fail(ErrorKind::device, "no CUDA device: {}", query_cuda().unavailable);
}

CudaInfo query_cuda() {
  CudaInfo info;
  info.unavailable =
      "this dpt was built without CUDA (cmake -DDPT_CUDA=ON, with the CUDA toolkit, cuDNN and the "
      "cuDNN frontend installed)";
  return info;
}

std::string cuda_built_in() {
  return "no CUDA";
}

}  // namespace dpt
