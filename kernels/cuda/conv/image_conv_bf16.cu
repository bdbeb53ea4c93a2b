// Convolution of small images in bf16. Each arithmetic has its own file, so that the files compile
// concurrently.
#include "kernels/cuda/conv/image_conv.cuh"

namespace dpt {

ImageKernel image_kernel_bf16(Pass pass, bool pooled) {
  return gemm::image_kernel<gemm::Bf16Math>(pass, pooled);
}

}  // namespace dpt
