// Small-image convolution in one arithmetic. Each has a separate file, so that they compile
// concurrently.
#include "kernels/cuda/conv/image_conv.cuh"

namespace dpt {

ImageKernel image_kernel_bf16(ConvPass pass, bool pooled) {
  return gemm::image_kernel<gemm::Bf16Math>(pass, pooled);
}

}  // namespace dpt
