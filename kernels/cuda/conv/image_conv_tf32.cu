// Convolution of small images in tf32. Each arithmetic has its own file, so that the files compile
// concurrently.
#include "kernels/cuda/conv/image_conv.cuh"

namespace dpt {

ImageKernel image_kernel_tf32(Pass pass, bool pooled) {
  return gemm::image_kernel<gemm::Tf32Math>(pass, pooled);
}

}  // namespace dpt
