// The direct convolution, compiled for AVX-512.
#include "kernels/cpu/simd/direct_conv_backward.h"
#include "kernels/cpu/simd/vec_avx512.h"

namespace dpt::direct {

constexpr ConvKernels<float> kConvAvx512{"direct:avx512", conv_scratch_bytes<avx512::Vec>,
                                         conv_saved_bytes<avx512::Vec>, conv_forward<avx512::Vec>,
                                         conv_backward<avx512::Vec>};

}  // namespace dpt::direct
