// Winograd's convolution, compiled for AVX2.
#include "kernels/cpu/simd/vec_avx2.h"
#include "kernels/cpu/simd/winograd_kernels.h"

namespace dpt::direct {

constexpr ConvKernels<float> kWinogradAvx2{
    "winograd:avx2", winograd::scratch_bytes<avx2::Vec>, winograd::saved_bytes<avx2::Vec>,
    winograd::forward<avx2::Vec>, winograd::backward<avx2::Vec>};

}  // namespace dpt::direct
