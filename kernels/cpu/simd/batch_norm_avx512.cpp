// Batch normalisation of rows, compiled for AVX-512.
#include "kernels/cpu/simd/batch_norm_rows.h"
#include "kernels/cpu/simd/vec_avx512.h"

namespace dpt::batch_norm {
namespace {

/// Sixteen channels of a row.
struct Row16 {
  static constexpr std::int64_t kLanes = 16;

  avx512::Vec v;

  static Row16 zero() { return {avx512::Vec::zero()}; }
  static Row16 filled(float x) { return {avx512::Vec::filled(x)}; }
  static Row16 load(const float* from, std::int64_t lanes) {
    return {avx512::Vec::load(from, avx512::Vec::first(lanes))};
  }
  static Row16 load(const Bf16* from, std::int64_t lanes) {
    const __m256i bits = _mm256_maskz_loadu_epi16(avx512::Vec::first(lanes), from);
    const __m512i wide = _mm512_maskz_cvtepu16_epi32(0xFFFF, bits);
    return {{_mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xFFFF, wide, 16))}};
  }
  void store(float* to, std::int64_t lanes) const { v.store(to, avx512::Vec::first(lanes)); }
  /// Stores the values, rounded like to_bf16.
  void store(Bf16* to, std::int64_t lanes) const {
    const __m512i bits = _mm512_castps_si512(v.v);
    const __m512i high = _mm512_maskz_srli_epi32(0xFFFF, bits, 16);
    const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(_mm512_add_epi32(bits, odd), _mm512_set1_epi32(0x7FFF));
    const __m512i nan = _mm512_or_si512(high, _mm512_set1_epi32(0x40));
    const __mmask16 is_nan = _mm512_cmp_ps_mask(v.v, v.v, _CMP_UNORD_Q);
    const __m512i result =
        _mm512_mask_mov_epi32(_mm512_maskz_srli_epi32(0xFFFF, up, 16), is_nan, nan);
    _mm512_mask_cvtepi32_storeu_epi16(to, avx512::Vec::first(lanes), result);
  }
  static Row16 fma(Row16 a, Row16 b, Row16 c) { return {avx512::Vec::fma(a.v, b.v, c.v)}; }
  friend Row16 operator+(Row16 a, Row16 b) { return {a.v + b.v}; }
  friend Row16 operator-(Row16 a, Row16 b) { return {a.v - b.v}; }
  friend Row16 operator*(Row16 a, Row16 b) { return {a.v * b.v}; }
  Row16 relu() const { return {v.relu()}; }
  Row16 at_least_zero() const { return {v.relu()}; }
  Row16 keep_positive(Row16 y) const { return {v.keep_positive(y.v)}; }
};

}  // namespace

constexpr RowKernels kRowsAvx512 = row_kernels<Row16>("own:avx512");

}  // namespace dpt::batch_norm
