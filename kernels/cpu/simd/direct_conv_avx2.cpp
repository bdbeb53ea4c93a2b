// The direct convolution, compiled for AVX2.
#include "kernels/cpu/simd/direct_conv_backward.h"
#include "kernels/cpu/simd/vec_avx2.h"

namespace dpt::direct {

constexpr ConvKernels<float> kConvAvx2{"direct:avx2", conv_scratch_bytes<avx2::Vec>,
                                       conv_saved_bytes<avx2::Vec>, conv_forward<avx2::Vec>,
                                       conv_backward<avx2::Vec>};

}  // namespace dpt::direct
