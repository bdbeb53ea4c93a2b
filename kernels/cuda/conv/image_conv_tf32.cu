// Small-image convolution in one arithmetic. Each has a separate file, so that they compile
// concurrently.
#include "kernels/cuda/conv/image_conv.cuh"

namespace dpt {

ImageKernel image_kernel_tf32(ConvPass pass, bool pooled) {
  return gemm::image_kernel<gemm::Tf32Math>(pass, pooled);
}

}  // namespace dpt
