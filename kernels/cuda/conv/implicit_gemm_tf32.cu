// The implicit product in tf32. Each arithmetic has its own file, so that the files compile
// concurrently.
#include "kernels/cuda/conv/gemm_kernel.cuh"

namespace dpt {

void launch_gemm_tf32(GemmKind kind, dim3 grid, cudaStream_t stream, const ConvGemm& gemm) {
  gemm::launch_gemm<gemm::Tf32Math>(kind, grid, stream, gemm);
}

}  // namespace dpt
