// Batch normalisation of rows, compiled for AVX2.
#include <cstring>

#include "kernels/cpu/simd/batch_norm_rows.h"
#include "kernels/cpu/simd/vec_avx2.h"

namespace dpt::batch_norm {
namespace {

/// Eight channels of a row.
struct Row8 {
  static constexpr std::int64_t kLanes = 8;

  avx2::Vec v;

  static Row8 zero() { return {avx2::Vec::zero()}; }
  static Row8 filled(float x) { return {avx2::Vec::filled(x)}; }
  static Row8 load(const float* from, std::int64_t lanes) {
    return {lanes == kLanes ? avx2::Vec::load(from)
                            : avx2::Vec::load(from, avx2::Vec::first(lanes))};
  }
  static Row8 load(const Bf16* from, std::int64_t lanes) {
    __m128i bits = _mm_setzero_si128();
    std::memcpy(&bits, from, static_cast<std::size_t>(lanes) * sizeof(Bf16));
    return {{_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16))}};
  }
  void store(float* to, std::int64_t lanes) const {
    if (lanes == kLanes) {
      v.store(to);
    } else {
      v.store(to, avx2::Vec::first(lanes));
    }
  }
  /// Stores the values, rounded like to_bf16.
  void store(Bf16* to, std::int64_t lanes) const {
    const __m256i bits = _mm256_castps_si256(v.v);
    const __m256i high = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    const __m256i up = _mm256_add_epi32(_mm256_add_epi32(bits, odd), _mm256_set1_epi32(0x7FFF));
    const __m256i nan = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(v.v, v.v, _CMP_UNORD_Q));
    const __m256i result = _mm256_blendv_epi8(_mm256_srli_epi32(up, 16), nan, is_nan);
    const __m128i narrow =
        _mm_packus_epi32(_mm256_castsi256_si128(result), _mm256_extracti128_si256(result, 1));
    std::memcpy(static_cast<void*>(to), &narrow, static_cast<std::size_t>(lanes) * sizeof(Bf16));
  }
  static Row8 fma(Row8 a, Row8 b, Row8 c) { return {avx2::Vec::fma(a.v, b.v, c.v)}; }
  friend Row8 operator+(Row8 a, Row8 b) { return {a.v + b.v}; }
  friend Row8 operator-(Row8 a, Row8 b) { return {a.v - b.v}; }
  friend Row8 operator*(Row8 a, Row8 b) { return {a.v * b.v}; }
  Row8 relu() const { return {v.relu()}; }
  Row8 at_least_zero() const { return {v.relu()}; }
  Row8 keep_positive(Row8 y) const { return {v.keep_positive(y.v)}; }
};

}  // namespace

constexpr RowKernels kRowsAvx2 = row_kernels<Row8>("own:avx2");

}  // namespace dpt::batch_norm
