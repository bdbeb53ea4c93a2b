// The direct linear layer, compiled for AVX2.
#include "kernels/cpu/simd/direct_linear_kernels.h"
#include "kernels/cpu/simd/vec_avx2.h"

namespace dpt::direct {

constexpr LinearKernels kLinearAvx2{"direct:avx2", linear_forward<avx2::Vec>,
                                    linear_backward<avx2::Vec>};

}  // namespace dpt::direct
