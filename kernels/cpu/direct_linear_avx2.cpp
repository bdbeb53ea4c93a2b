// The direct linear layer, compiled for AVX2.
#include "kernels/cpu/direct_linear_kernels.h"
#include "kernels/cpu/direct_simd_avx2.h"

namespace dpt::direct {

const LinearKernels& linear_kernels_avx2() {
  static constexpr LinearKernels kKernels{"direct:avx2", linear_forward<avx2::Vec>,
                                          linear_backward<avx2::Vec>};
  return kKernels;
}

}  // namespace dpt::direct
