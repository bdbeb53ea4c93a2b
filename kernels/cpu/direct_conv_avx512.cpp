// The direct convolution, compiled for AVX-512.
#include "kernels/cpu/direct_conv_backward.h"
#include "kernels/cpu/direct_simd_avx512.h"

namespace dpt::direct {

const ConvKernels& conv_kernels_avx512() {
  static constexpr ConvKernels kKernels{"direct:avx512", conv_scratch_bytes<avx512::Vec>,
                                        conv_saved_bytes<avx512::Vec>, conv_forward<avx512::Vec>,
                                        conv_backward<avx512::Vec>};
  return kKernels;
}

}  // namespace dpt::direct
