// Winograd's convolution, compiled for AVX2.
#include "kernels/cpu/direct_simd_avx2.h"
#include "kernels/cpu/winograd_kernels.h"

namespace dpt::direct {

const ConvKernels& winograd_kernels_avx2() {
  static constexpr ConvKernels kKernels{
      "winograd:avx2", winograd::scratch_bytes<avx2::Vec>, winograd::saved_bytes<avx2::Vec>,
      winograd::forward<avx2::Vec>, winograd::backward<avx2::Vec>};
  return kKernels;
}

}  // namespace dpt::direct
