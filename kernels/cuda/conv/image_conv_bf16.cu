// The convolution of small images in one arithmetic; a file each, so that they compile at a time.
#include "kernels/cuda/conv/image_conv.cuh"

namespace dpt {

ImageKernel image_kernel_bf16(ConvPass pass, bool pooled) {
  return gemm::image_kernel<gemm::Bf16Math>(pass, pooled);
}

}  // namespace dpt
