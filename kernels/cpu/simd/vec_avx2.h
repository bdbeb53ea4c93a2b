// Vectors of eight floats in an AVX2 register, with the operations that the direct kernels need.
// The kernels are templates over the vector type; only files compiled for AVX2 may include this
// one.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/simd/transpose8.h"

namespace dpt::avx2 {

struct Vec {
  static constexpr int kLanes = 8;
  /// Number of accumulators that a register tile may hold: all 16 registers except three for
  /// operands and one for a broadcast.
  static constexpr int kAccumulators = 12;
  using Value = float;
  static constexpr int kTerms = 1;
  using Mask = __m256i;

  __m256 v;

  static Vec zero() { return {_mm256_setzero_ps()}; }
  static Vec load(const float* from) { return {_mm256_loadu_ps(from)}; }
  static Vec broadcast(const float* from) { return {_mm256_broadcast_ss(from)}; }
  static Vec filled(float x) { return {_mm256_set1_ps(x)}; }
  /// Returns a mask of the first `count` lanes; the others are neither read nor written.
  static Mask first(std::int64_t count) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), lane);
  }
  static Vec load(const float* from, Mask mask) { return {_mm256_maskload_ps(from, mask)}; }
  /// Loads an operand of `fma`: a lane's terms are adjacent in memory.
  static Vec operand(const float* from) { return load(from); }
  static Vec operand(const float* from, Mask mask) { return load(from, mask); }
  /// Returns the mask of the first `count` values of an operand.
  static Mask first_values(std::int64_t count) { return first(count); }
  /// Loads the values of an operand that `mask` selects; the others are zero.
  static Vec values(const float* from, Mask mask) { return load(from, mask); }
  void store(float* to) const { _mm256_storeu_ps(to, v); }
  void store(float* to, Mask mask) const { _mm256_maskstore_ps(to, mask, v); }

  /// Returns a * b + c, rounded once.
  static Vec fma(Vec a, Vec b, Vec c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
  friend Vec operator+(Vec a, Vec b) { return {_mm256_add_ps(a.v, b.v)}; }
  friend Vec operator-(Vec a, Vec b) { return {_mm256_sub_ps(a.v, b.v)}; }
  friend Vec operator*(Vec a, Vec b) { return {_mm256_mul_ps(a.v, b.v)}; }

  /// Returns max(x, 0); NaN stays NaN.
  Vec relu() const { return {_mm256_max_ps(_mm256_setzero_ps(), v)}; }
  /// Returns a word whose bit i is set if lane i would pass ReLU (is not <= 0; a NaN passes, as in
  /// PyTorch).
  std::uint32_t positive_bits() const {
    return static_cast<std::uint32_t>(
        _mm256_movemask_ps(_mm256_cmp_ps(v, _mm256_setzero_ps(), _CMP_NLE_UQ)));
  }
  /// Returns a mask of the lanes in which a replaces b in a maximum: a is greater or NaN (as in
  /// PyTorch).
  static __m256 wins(Vec a, Vec b) {
    return _mm256_or_ps(_mm256_cmp_ps(a.v, b.v, _CMP_GT_OQ), _mm256_cmp_ps(a.v, a.v, _CMP_UNORD_Q));
  }
  static std::uint32_t winning_bits(Vec a, Vec b) {
    return static_cast<std::uint32_t>(_mm256_movemask_ps(wins(a, b)));
  }
  static Vec winner(Vec a, Vec b) { return {_mm256_blendv_ps(b.v, a.v, wins(a, b))}; }
  /// Returns this vector with zeros in the lanes whose bit is not set.
  Vec keep(std::uint32_t bits) const {
    const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i have = _mm256_and_si256(_mm256_set1_epi32(static_cast<int>(bits)), bit);
    return {_mm256_and_ps(v, _mm256_castsi256_ps(_mm256_cmpeq_epi32(have, bit)))};
  }
  /// Returns this vector with zeros in the lanes in which y would not pass ReLU.
  Vec keep_positive(Vec y) const {
    return {_mm256_and_ps(v, _mm256_cmp_ps(y.v, _mm256_setzero_ps(), _CMP_NLE_UQ))};
  }
  /// Returns the sum of the lanes, in the order of a fixed tree: lane i with i + 4, then i + 2,
  /// then i + 1.
  float sum() const {
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
  }

  /// Transposes an 8 x 8 block (transpose8.h).
  static void transpose8(const float* from, std::int64_t from_step, std::int64_t rows, float* to,
                         std::int64_t to_step) {
    direct::transpose8<Vec>(from, from_step, rows, to, to_step);
  }
};

}  // namespace dpt::avx2
