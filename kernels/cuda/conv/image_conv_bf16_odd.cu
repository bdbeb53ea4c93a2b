// Convolution of small images in bf16 as tf32, for odd numbers of channels. Each arithmetic has its
// own file, so that the files compile concurrently.
#include "kernels/cuda/conv/image_conv.cuh"

namespace dpt {

ImageKernel image_kernel_bf16_odd(Pass pass, bool pooled) {
  return gemm::image_kernel<gemm::Bf16AsTf32Math>(pass, pooled);
}

}  // namespace dpt
