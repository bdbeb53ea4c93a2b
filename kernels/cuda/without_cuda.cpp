// Implements kernels/cuda/backend.h in a build without CUDA.
#include "kernels/base/error.h"
#include "kernels/cuda/backend.h"
#include "kernels/cuda_info.h"
#include "kernels/peer_sums.h"

namespace dpt {

std::unique_ptr<Backend> make_cuda_backend(int, const BackendOptions&) {
  fail(ErrorKind::device, "no CUDA device: {}", query_cuda().unavailable);
}

PeerReadiness peer_readiness(std::span<Backend* const>) noexcept {
  PeerReadiness readiness;
  readiness.why_not = query_cuda().unavailable;
  return readiness;
}

std::string make_peer_id() {
  fail(ErrorKind::device, "sums over GPUs are not available: {}", query_cuda().unavailable);
}

std::unique_ptr<PeerSums> make_peer_sums(std::span<Backend* const>) {
  fail(ErrorKind::device, "sums over GPUs are not available: {}", query_cuda().unavailable);
}

CudaInfo query_cuda() {
  CudaInfo info;
  info.unavailable =
      "this dpt was built without CUDA (to enable it, install the CUDA toolkit, cuDNN and NCCL, "
      "and build with cmake -DDPT_CUDA=ON)";
  return info;
}

std::vector<std::string> query_cuda_libraries() {
  return {};
}

std::string cuda_built_in() {
  return "no CUDA";
}

}  // namespace dpt
