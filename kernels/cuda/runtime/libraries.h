// NVIDIA's libraries, opened when first needed, so that dpt starts on machines without them. If a
// library is missing or too old, the function that opens it throws ErrorKind::device with its name,
// the places searched and how to install it.
#pragma once

#include <cublasLt.h>

#include <string>
#include <vector>

namespace dpt {

/// The functions of cuBLASLt that dpt calls.
struct CublasLt {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtMatmulDescCreate) matmul_desc_create;
  decltype(&cublasLtMatmulDescDestroy) matmul_desc_destroy;
  decltype(&cublasLtMatmulDescSetAttribute) matmul_desc_set;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&cublasLtMatmulAlgoConfigGetAttribute) algorithm_get;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtGetVersion) version;
  decltype(&cublasLtGetStatusString) status_string;
};
const CublasLt& cublas_lt();

/// Returns the handle of libcudnn.so.9 for dlsym, opened once.
void* cudnn_library();

/// Returns the handle of libnccl.so.2, opened once.
void* nccl_library();

/// Returns "cuDNN 9.19.0", or the reason why it cannot be used. Never throws.
std::string describe_cudnn();

/// Returns "cuBLASLt 13.1.0", "cuDNN 9.19.0" and "NCCL 2.28.9", or for each the reason why it
/// cannot be used. Never throws.
std::vector<std::string> describe_libraries();

}  // namespace dpt
