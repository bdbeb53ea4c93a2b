// Vectors of sixteen floats in an AVX-512 register, with the operations of vec_avx2.h. Only files
// compiled for AVX-512 may include this one. Some operations use masked forms, because GCC 12 warns
// about the undefined source that its headers pass to the plain forms.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/common/bf16.h"
#include "kernels/cpu/simd/transpose8.h"

namespace dpt::avx512 {

struct Vec {
  static constexpr int kLanes = 16;
  /// Number of accumulators: the 32 registers hold 24 of them, and three operands and a broadcast.
  static constexpr int kAccumulators = 24;
  using Value = float;
  static constexpr int kTerms = 1;
  using Mask = __mmask16;

  __m512 v;

  static Vec zero() { return {_mm512_setzero_ps()}; }
  static Vec load(const float* from) { return {_mm512_loadu_ps(from)}; }
  static Vec broadcast(const float* from) { return {_mm512_set1_ps(*from)}; }
  static Vec filled(float x) { return {_mm512_set1_ps(x)}; }
  static Mask first(std::int64_t count) { return static_cast<Mask>((1U << count) - 1); }
  static Vec load(const float* from, Mask mask) { return {_mm512_maskz_loadu_ps(mask, from)}; }
  /// Loads bf16 numbers and widens them.
  static Vec load(const Bf16* from, Mask mask) {
    const __m256i bits = _mm256_maskz_loadu_epi16(mask, from);
    const __m512i wide = _mm512_maskz_cvtepu16_epi32(0xFFFF, bits);
    return {_mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xFFFF, wide, 16))};
  }
  /// Stores the values, rounded like to_bf16.
  void store(Bf16* to, Mask mask) const {
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i high = _mm512_maskz_srli_epi32(0xFFFF, bits, 16);
    const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(_mm512_add_epi32(bits, odd), _mm512_set1_epi32(0x7FFF));
    const __m512i nan = _mm512_or_si512(high, _mm512_set1_epi32(0x40));
    const __mmask16 is_nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    const __m512i result =
        _mm512_mask_mov_epi32(_mm512_maskz_srli_epi32(0xFFFF, up, 16), is_nan, nan);
    _mm512_mask_cvtepi32_storeu_epi16(to, mask, result);
  }
  static Vec operand(const float* from) { return load(from); }
  static Vec operand(const float* from, Mask mask) { return load(from, mask); }
  static Mask first_values(std::int64_t count) { return first(count); }
  static Vec values(const float* from, Mask mask) { return load(from, mask); }
  void store(float* to) const { _mm512_storeu_ps(to, v); }
  void store(float* to, Mask mask) const { _mm512_mask_storeu_ps(to, mask, v); }

  static Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
  friend Vec operator+(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
  friend Vec operator-(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
  friend Vec operator*(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }

  Vec relu() const { return keep(positive_bits()); }
  std::uint32_t positive_bits() const {
    return _mm512_cmp_ps_mask(v, _mm512_setzero_ps(), _CMP_NLE_UQ);
  }
  static std::uint32_t winning_bits(Vec a, Vec b) {
    return static_cast<std::uint32_t>(_mm512_cmp_ps_mask(a.v, b.v, _CMP_GT_OQ)) |
           _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q);
  }
  static Vec winner(Vec a, Vec b) {
    return {_mm512_mask_blend_ps(static_cast<Mask>(winning_bits(a, b)), b.v, a.v)};
  }
  Vec keep(std::uint32_t bits) const { return {_mm512_maskz_mov_ps(static_cast<Mask>(bits), v)}; }
  Vec keep_positive(Vec y) const { return keep(y.positive_bits()); }
  /// Returns the sum of the lanes, in the order of a fixed tree: lane i with i + 8, then i + 4, i +
  /// 2 and i + 1.
  float sum() const {
    const __m256 half = _mm256_add_ps(_mm512_maskz_extractf32x8_ps(0xFF, v, 0),
                                      _mm512_maskz_extractf32x8_ps(0xFF, v, 1));
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
  }
  static void transpose8(const float* from, std::int64_t from_step, std::int64_t rows, float* to,
                         std::int64_t to_step) {
    direct::transpose8<Vec>(from, from_step, rows, to, to_step);
  }
};

}  // namespace dpt::avx512
