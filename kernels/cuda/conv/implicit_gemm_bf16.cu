// The implicit product in bf16. Each arithmetic has its own file, so that the files compile
// concurrently.
#include "kernels/cuda/conv/gemm_kernel.cuh"

namespace dpt {

void launch_gemm_bf16(GemmKind kind, dim3 grid, cudaStream_t stream, const ConvGemm& gemm) {
  gemm::launch_gemm<gemm::Bf16Math>(kind, grid, stream, gemm);
}

}  // namespace dpt
