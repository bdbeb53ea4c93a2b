// The direct linear layer, compiled for AVX-512.
#include "kernels/cpu/simd/direct_linear_kernels.h"
#include "kernels/cpu/simd/vec_avx512.h"

namespace dpt::direct {

constexpr LinearKernels kLinearAvx512{"direct:avx512", linear_forward<avx512::Vec>,
                                      linear_backward<avx512::Vec>};

}  // namespace dpt::direct
