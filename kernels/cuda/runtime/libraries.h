// NVIDIA's libraries, opened when they are first needed, so that dpt starts on machines that have
// none of them. A library that is missing or too old throws ErrorKind::device: its name, where it
// was looked for and what to install.
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

/// The handle of libcudnn.so.9 for dlsym, opened once.
void* cudnn_library();

/// The handle of libnccl.so.2, opened once.
void* nccl_library();

/// "cuDNN 9.19.0", or why it cannot be used. Never throws.
std::string describe_cudnn();

/// "cuBLASLt 13.1.0", "cuDNN 9.19.0", "NCCL 2.28.9" or why one cannot be used. Never throws.
std::vector<std::string> describe_libraries();

}  // namespace dpt
