// Loops over bf16 numbers, compiled for AVX-512.
#include "kernels/cpu/simd/bf16_loops.h"
#include "kernels/cpu/simd/vec_avx512.h"

namespace dpt {
namespace {

using avx512::Vec;

/// Calls body(first element, mask of the elements in use) for each vector.
template <class Body>
[[gnu::always_inline]] inline void for_vectors(std::int64_t n, const Body& body) {
  std::int64_t i = 0;
  for (; i + Vec::kLanes <= n; i += Vec::kLanes) body(i, Vec::first(Vec::kLanes));
  if (i < n) body(i, Vec::first(n - i));
}

void round(Bf16* to, const float* from, std::int64_t n) {
  for_vectors(
      n, [&](std::int64_t i, Vec::Mask mask) { Vec::load(from + i, mask).store(to + i, mask); });
}

void sum(Bf16* y, const Bf16* const* x, int inputs, bool relu, std::int64_t n) {
  for_vectors(n, [&](std::int64_t i, Vec::Mask mask) {
    Vec total = Vec::load(x[0] + i, mask);
    for (int k = 1; k < inputs; ++k) total = total + Vec::load(x[k] + i, mask);
    (relu ? total.relu() : total).store(y + i, mask);
  });
}

/// Copies the bits of `from` to `to` where y passes ReLU; elsewhere sets `to` to 0.
[[gnu::always_inline]] inline void keep(Bf16* to, const Bf16* from, const Bf16* y, std::int64_t n) {
  for_vectors(n, [&](std::int64_t i, Vec::Mask mask) {
    const auto passes = static_cast<Vec::Mask>(Vec::load(y + i, mask).positive_bits() & mask);
    _mm256_mask_storeu_epi16(to + i, mask, _mm256_maskz_loadu_epi16(passes, from + i));
  });
}

void relu(Bf16* y, const Bf16* x, std::int64_t n) {
  keep(y, x, x, n);
}

void mask(Bf16* dx, const Bf16* dy, const Bf16* y, std::int64_t n) {
  keep(dx, dy, y, n);
}

}  // namespace

constexpr Bf16Loops kBf16LoopsAvx512{round, sum, relu, mask};

}  // namespace dpt
