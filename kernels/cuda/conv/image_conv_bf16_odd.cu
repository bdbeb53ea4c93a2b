// Small-image convolution in one arithmetic. Each has a separate file, so that they compile
// concurrently.
#include "kernels/cuda/conv/image_conv.cuh"

namespace dpt {

ImageKernel image_kernel_bf16_odd(ConvPass pass, bool pooled) {
  return gemm::image_kernel<gemm::Bf16AsTf32Math>(pass, pooled);
}

}  // namespace dpt
