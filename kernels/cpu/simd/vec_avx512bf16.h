// Vectors of sixteen fp32 sums of products of bf16 pairs, for processors with AVX512-BF16. Only
// files compiled for it may include this one.
#pragma once

#include <cstring>

#include "kernels/common/bf16.h"
#include "kernels/cpu/simd/vec_avx512.h"

namespace dpt::avx512bf16 {

/// Sixteen floats in kernels of bf16 activations. It is a type of its own, so that templates over
/// it are not compiled for AVX512-BF16 under names that processors with only AVX-512 use too.
struct FloatVec : avx512::Vec {
  FloatVec() = default;
  FloatVec(avx512::Vec vec) : avx512::Vec(vec) {}
  static void transpose8(const float* from, std::int64_t from_step, std::int64_t rows, float* to,
                         std::int64_t to_step) {
    direct::transpose8<FloatVec>(from, from_step, rows, to, to_step);
  }
};

/// Sixteen fp32 sums, or, as an operand of `fma`, sixteen pairs of bf16 numbers.
struct PairVec : avx512::Vec {
  using Value = Bf16;
  static constexpr int kTerms = 2;
  using Vec = avx512::Vec;
  using Floats = FloatVec;

  PairVec() = default;
  PairVec(Vec vec) : Vec(vec) {}

  using Vec::load;
  using Vec::store;
  static Vec load(const Bf16* from) { return load(from, 0xFFFF); }
  /// Stores the values, rounded to nearest, ties to even. Denormal numbers become zero.
  void store(Bf16* to) const { store(to, 0xFFFF); }
  void store(Bf16* to, Mask mask) const {
    _mm256_mask_storeu_epi16(to, mask, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v)));
  }

  static PairVec operand(const Bf16* from) { return as_vec(_mm512_loadu_si512(from)); }
  static PairVec operand(const Bf16* from, Mask mask) {
    return as_vec(_mm512_maskz_loadu_epi32(mask, from));
  }
  void store_operand(Bf16* to) const { _mm512_storeu_si512(to, _mm512_castps_si512(v)); }
  void store_operand(Bf16* to, Mask mask) const {
    _mm512_mask_storeu_epi32(to, mask, _mm512_castps_si512(v));
  }
  static __mmask32 first_values(std::int64_t count) {
    return static_cast<__mmask32>((std::uint64_t{1} << count) - 1);
  }
  static PairVec values(const Bf16* from, __mmask32 mask) {
    return as_vec(_mm512_maskz_loadu_epi16(mask, from));
  }
  /// Returns the operand whose lanes all hold the pair at `from`.
  static PairVec broadcast(const Bf16* from) {
    int pair;
    std::memcpy(&pair, from, sizeof pair);
    return as_vec(_mm512_set1_epi32(pair));
  }
  /// Returns the operand that pairs the numbers of `first` and `second`; null stands for zeros.
  static PairVec paired(const Bf16* first, const Bf16* second, Mask mask) {
    if (!second) return as_vec(_mm512_maskz_cvtepu16_epi32(0xFFFF, bits(first, mask)));
    return paired(bits(first, mask), bits(second, mask));
  }

  /// Does the same; `second` is rounded to bf16.
  static PairVec paired(const Bf16* first, PairVec second) {
    return paired(bits(first, 0xFFFF), reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(second.v)));
  }

  static Vec fma(PairVec a, PairVec b, Vec c) {
    return {
        _mm512_dpbf16_ps(c.v, reinterpret_cast<__m512bh>(a.v), reinterpret_cast<__m512bh>(b.v))};
  }
  static void transpose8(const Bf16* from, std::int64_t from_step, std::int64_t rows, Bf16* to,
                         std::int64_t to_step) {
    direct::transpose8<PairVec>(from, from_step, rows, to, to_step);
  }

 private:
  static PairVec paired(__m256i first, __m256i second) {
    const __m512i low = _mm512_maskz_cvtepu16_epi32(0xFFFF, first);
    const __m512i high = _mm512_maskz_cvtepu16_epi32(0xFFFF, second);
    return as_vec(_mm512_or_si512(low, _mm512_maskz_slli_epi32(0xFFFF, high, 16)));
  }
  static PairVec as_vec(__m512i pairs) { return Vec{_mm512_castsi512_ps(pairs)}; }
  static __m256i bits(const Bf16* from, Mask mask) { return _mm256_maskz_loadu_epi16(mask, from); }
};

}  // namespace dpt::avx512bf16
