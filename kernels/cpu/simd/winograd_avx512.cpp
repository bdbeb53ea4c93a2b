// Winograd's convolution, compiled for AVX-512.
#include "kernels/cpu/simd/vec_avx512.h"
#include "kernels/cpu/simd/winograd_kernels.h"

namespace dpt::direct {

constexpr ConvKernels<float> kWinogradAvx512{
    "winograd:avx512", winograd::scratch_bytes<avx512::Vec>, winograd::saved_bytes<avx512::Vec>,
    winograd::forward<avx512::Vec>, winograd::backward<avx512::Vec>};

}  // namespace dpt::direct
