// Convolution in bf16 by Winograd's filtering, compiled for AVX512-BF16. The forward pass computes
// in fp32. Its tiles are so large that it is still faster than direct products of bf16. Rounding
// its transformed operands to bf16 would increase the errors of activations, which move the loss
// far more than the errors of gradients do (docs/internals/performance.md).
#include "kernels/cpu/simd/direct_conv_forward.h"
#include "kernels/cpu/simd/vec_avx512bf16.h"
#include "kernels/cpu/simd/winograd4_forward.h"
#include "kernels/cpu/simd/winograd_kernels.h"

namespace dpt::direct {
namespace {

using avx512bf16::PairVec;

/// Returns true if Winograd's forward pass is faster than the direct one: at most a third of the
/// outputs of its tiles lie outside the image, and the transformed weights fit into the third-level
/// cache. The batch does not decide, so that a sample has the same bits in any batch.
bool forward_pays(const Conv& c) {
  constexpr std::int64_t kSide = winograd4::kSide;
  const std::int64_t tiles = (c.out_h + kSide - 1) / kSide * ((c.out_w + kSide - 1) / kSide);
  return 3 * c.out_h * c.out_w >= 2 * tiles * kSide * kSide && c.in_c * c.out_c <= 256 * 256;
}

/// Returns the convolution without what its backward pass needs.
Conv forward_of(Conv c) {
  c.training = false;
  c.input_gradient = false;
  return c;
}

std::size_t scratch_bytes(const Conv& c) {
  const std::size_t forward = forward_pays(c) ? winograd4::scratch_bytes<PairVec>(c)
                                              : conv_scratch_bytes<PairVec>(forward_of(c));
  const std::size_t backward = c.training ? winograd::scratch_bytes<PairVec>(c) : 0;
  return forward > backward ? forward : backward;
}

void forward(const Conv& c, const ConvCall<Bf16>& args) {
  if (forward_pays(c)) return winograd4::forward<PairVec>(c, args);
  conv_forward<PairVec>(forward_of(c), args);
}

}  // namespace

constexpr ConvKernels<Bf16> kWinogradAvx512Bf16{"winograd:avx512_bf16",         scratch_bytes,
                                                winograd::saved_bytes<PairVec>, forward,
                                                winograd::backward<PairVec>,    true};

}  // namespace dpt::direct
