// Vectors of eight floats with the operators and functions that the formulas of
// kernels/common/optimizers need. Only files compiled for AVX2 may include this one.
#pragma once

#include <immintrin.h>

namespace dpt {
namespace {  // must not be linked into code for other processors

struct Floats {
  __m256 v;
};
inline Floats load(const float* from) {
  return {_mm256_loadu_ps(from)};
}
inline void store(float* to, Floats x) {
  _mm256_storeu_ps(to, x.v);
}
inline Floats operator+(Floats a, Floats b) {
  return {_mm256_add_ps(a.v, b.v)};
}
inline Floats operator-(Floats a, Floats b) {
  return {_mm256_sub_ps(a.v, b.v)};
}
inline Floats operator*(Floats a, Floats b) {
  return {_mm256_mul_ps(a.v, b.v)};
}
inline Floats operator/(Floats a, Floats b) {
  return {_mm256_div_ps(a.v, b.v)};
}
inline Floats operator*(Floats a, float b) {
  return a * Floats{_mm256_set1_ps(b)};
}
inline Floats operator+(Floats a, float b) {
  return a + Floats{_mm256_set1_ps(b)};
}
inline Floats square_root(Floats a) {
  return {_mm256_sqrt_ps(a.v)};
}
/// Returns the same as the scalar `larger`: a if a is NaN or greater. If either is NaN, the
/// instruction returns its second operand b, so a NaN in a has to be restored.
inline Floats larger(Floats a, Floats b) {
  const __m256 a_is_nan = _mm256_cmp_ps(a.v, a.v, _CMP_UNORD_Q);
  return {_mm256_blendv_ps(_mm256_max_ps(a.v, b.v), a.v, a_is_nan)};
}
/// Returns the same as the scalar `sign_of`: zeros and NaNs are unchanged.
inline Floats sign_of(Floats a) {
  const __m256 zero = _mm256_setzero_ps();
  const __m256 above = _mm256_cmp_ps(a.v, zero, _CMP_GT_OQ);
  const __m256 below = _mm256_cmp_ps(a.v, zero, _CMP_LT_OQ);
  const __m256 signed_or_zero = _mm256_blendv_ps(a.v, _mm256_set1_ps(-1.0F), below);
  return {_mm256_blendv_ps(signed_or_zero, _mm256_set1_ps(1.0F), above)};
}

/// Detects non-finite values, with two cheap instructions per vector.
class FiniteCheck {
 public:
  /// Checks x. The difference x - x is +0 if x is finite, otherwise NaN, whose bits are not zero.
  void look_at(Floats x) { bits_ = _mm256_or_ps(bits_, (x - x).v); }
  bool all_finite() const {
    const __m256i bits = _mm256_castps_si256(bits_);
    return _mm256_testz_si256(bits, bits) != 0;
  }

 private:
  __m256 bits_ = _mm256_setzero_ps();
};

}  // namespace
}  // namespace dpt
