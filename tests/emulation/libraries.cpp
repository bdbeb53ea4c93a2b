// Replaces kernels/cuda/runtime/libraries.cpp in an emulated build: no library is opened.
#include "kernels/cuda/runtime/libraries.h"

#include "emulation/control.h"
#include "kernels/base/error.h"

namespace dpt {

const CublasLt& cublas_lt() {
  static const CublasLt functions = {
      .create = cublasLtCreate,
      .destroy = cublasLtDestroy,
      .matmul_desc_create = cublasLtMatmulDescCreate,
      .matmul_desc_destroy = cublasLtMatmulDescDestroy,
      .matmul_desc_set = cublasLtMatmulDescSetAttribute,
      .layout_create = cublasLtMatrixLayoutCreate,
      .layout_destroy = cublasLtMatrixLayoutDestroy,
      .preference_create = cublasLtMatmulPreferenceCreate,
      .preference_destroy = cublasLtMatmulPreferenceDestroy,
      .preference_set = cublasLtMatmulPreferenceSetAttribute,
      .heuristic = cublasLtMatmulAlgoGetHeuristic,
      .algorithm_get = cublasLtMatmulAlgoConfigGetAttribute,
      .matmul = cublasLtMatmul,
      .version = cublasLtGetVersion,
      .status_string = cublasLtGetStatusString,
  };
  return functions;
}

void* cudnn_library() {
  fail(ErrorKind::device, "cuDNN cannot be used: this build emulates CUDA, for tests");
}

std::string describe_cudnn() {
  return emulation::cudnn() == emulation::Cudnn::absent ? "cuDNN cannot be used: told to be absent"
                                                        : "cuDNN emulated";
}

std::vector<std::string> describe_libraries() {
  return {"cuBLASLt emulated", describe_cudnn()};
}

}  // namespace dpt
