// Convolution in bf16 whose gradients are computed by Winograd's filtering, compiled for
// AVX512-BF16. The forward pass is the direct one: Winograd's would round the transformed inputs
// and weights, and errors of activations move the loss far more than errors of gradients
// (docs/internals/performance.md).
#include "kernels/cpu/simd/direct_conv_forward.h"
#include "kernels/cpu/simd/vec_avx512bf16.h"
#include "kernels/cpu/simd/winograd_kernels.h"

namespace dpt::direct {
namespace {

using avx512bf16::PairVec;

/// Returns the convolution without what its backward pass needs.
Conv forward_of(Conv c) {
  c.training = false;
  c.input_gradient = false;
  return c;
}

std::size_t scratch_bytes(const Conv& c) {
  const std::size_t forward = conv_scratch_bytes<PairVec>(forward_of(c));
  const std::size_t backward = c.training ? winograd::scratch_bytes<PairVec>(c) : 0;
  return forward > backward ? forward : backward;
}

void forward(const Conv& c, const ConvCall<Bf16>& args) {
  conv_forward<PairVec>(forward_of(c), args);
}

}  // namespace

constexpr ConvKernels<Bf16> kWinogradAvx512Bf16{"winograd:avx512_bf16",         scratch_bytes,
                                                winograd::saved_bytes<PairVec>, forward,
                                                winograd::backward<PairVec>,    true};

}  // namespace dpt::direct
