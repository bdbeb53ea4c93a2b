// The direct convolution in bf16, compiled for AVX512-BF16.
#include "kernels/cpu/simd/direct_conv_backward.h"
#include "kernels/cpu/simd/vec_avx512bf16.h"

namespace dpt::direct {

using avx512bf16::PairVec;

constexpr ConvKernels<Bf16> kConvAvx512Bf16{"direct:avx512_bf16", conv_scratch_bytes<PairVec>,
                                            conv_saved_bytes<PairVec>, conv_forward<PairVec>,
                                            conv_backward<PairVec>};

}  // namespace dpt::direct
