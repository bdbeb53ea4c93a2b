// Winograd's convolution, compiled for AVX-512.
#include "kernels/cpu/direct_simd_avx512.h"
#include "kernels/cpu/winograd_kernels.h"

namespace dpt::direct {

const ConvKernels& winograd_kernels_avx512() {
  static constexpr ConvKernels kKernels{
      "winograd:avx512", winograd::scratch_bytes<avx512::Vec>, winograd::saved_bytes<avx512::Vec>,
      winograd::forward<avx512::Vec>, winograd::backward<avx512::Vec>};
  return kKernels;
}

}  // namespace dpt::direct
