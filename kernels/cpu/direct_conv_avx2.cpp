// The direct convolution, compiled for AVX2.
#include "kernels/cpu/direct_conv_backward.h"
#include "kernels/cpu/direct_simd_avx2.h"

namespace dpt::direct {

const ConvKernels& conv_kernels_avx2() {
  static constexpr ConvKernels kKernels{"direct:avx2", conv_scratch_bytes<avx2::Vec>,
                                        conv_saved_bytes<avx2::Vec>, conv_forward<avx2::Vec>,
                                        conv_backward<avx2::Vec>};
  return kKernels;
}

}  // namespace dpt::direct
