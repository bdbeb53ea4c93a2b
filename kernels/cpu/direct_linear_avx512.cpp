// The direct linear layer, compiled for AVX-512.
#include "kernels/cpu/direct_linear_kernels.h"
#include "kernels/cpu/direct_simd_avx512.h"

namespace dpt::direct {

const LinearKernels& linear_kernels_avx512() {
  static constexpr LinearKernels kKernels{"direct:avx512", linear_forward<avx512::Vec>,
                                          linear_backward<avx512::Vec>};
  return kKernels;
}

}  // namespace dpt::direct
