// AVX2 loops over flat buffers. This file instantiates no template for plain floats: such a copy,
// made of AVX2 instructions, could be the one that the linker keeps for everyone.
#include "kernels/cpu/flat_avx2.h"

#include <immintrin.h>

namespace dpt::flat_avx2 {
namespace {

/// Eight floats with the operators that optimizer_math.h asks for.
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
/// As the scalar `larger`: a where a is NaN or greater. The instruction gives its second operand
/// when either is NaN, which is b's NaN or b itself, so a's NaN is put back.
inline Floats larger(Floats a, Floats b) {
  const __m256 a_is_nan = _mm256_cmp_ps(a.v, a.v, _CMP_UNORD_Q);
  return {_mm256_blendv_ps(_mm256_max_ps(a.v, b.v), a.v, a_is_nan)};
}

/// Notices values that are not finite, for two cheap instructions a vector.
class FiniteCheck {
 public:
  /// x - x is +0 where x is finite and a NaN, whose bits are not zero, elsewhere.
  void look_at(Floats x) { bits_ = _mm256_or_ps(bits_, (x - x).v); }
  bool all_finite() const {
    const __m256i bits = _mm256_castps_si256(bits_);
    return _mm256_testz_si256(bits, bits) != 0;
  }

 private:
  __m256 bits_ = _mm256_setzero_ps();
};

}  // namespace

std::int64_t add(float* to, const float* a, const float* b, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8) store(to + i, load(a + i) + load(b + i));
  return i;
}

std::int64_t add_squares(const float* g, std::int64_t n, double sums[16]) {
  __m256d sum[4];
  for (int j = 0; j < 4; ++j) sum[j] = _mm256_loadu_pd(sums + 4 * j);
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (int j = 0; j < 4; ++j) {
      // The square of a float is exact in double: fused or not, the sum has the same bits.
      const __m256d x = _mm256_cvtps_pd(_mm_loadu_ps(g + i + 4 * j));
      sum[j] = _mm256_fmadd_pd(x, x, sum[j]);
    }
  }
  for (int j = 0; j < 4; ++j) _mm256_storeu_pd(sums + 4 * j, sum[j]);
  return i;
}

std::int64_t sgd(const SgdStep& step, float* params, const float* grads, std::int64_t n,
                 bool& finite) {
  std::int64_t i = 0;
  FiniteCheck check;
  for (; i + 8 <= n; i += 8) {
    Floats param = load(params + i);
    sgd_update(step, param, load(grads + i));
    store(params + i, param);
    check.look_at(param);
  }
  finite = finite && check.all_finite();
  return i;
}

std::int64_t sgd_momentum(const SgdStep& step, bool first, float* params, const float* grads,
                          float* buffer, std::int64_t n, bool& finite) {
  std::int64_t i = 0;
  FiniteCheck check;
  for (; i + 8 <= n; i += 8) {
    Floats param = load(params + i), momentum = load(buffer + i);
    sgd_momentum_update(step, first, param, load(grads + i), momentum);
    store(params + i, param);
    store(buffer + i, momentum);
    check.look_at(param);
    check.look_at(momentum);
  }
  finite = finite && check.all_finite();
  return i;
}

std::int64_t adam(const AdamStep& step, float* params, const float* grads, float* mean,
                  float* square, float* max_square, std::int64_t n, bool& finite) {
  std::int64_t i = 0;
  FiniteCheck check;
  for (; i + 8 <= n; i += 8) {
    Floats param = load(params + i), m = load(mean + i), s = load(square + i);
    if (max_square) {
      Floats largest = load(max_square + i);
      adam_update(step, param, load(grads + i), m, s, &largest);
      store(max_square + i, largest);
    } else {
      adam_update(step, param, load(grads + i), m, s, static_cast<Floats*>(nullptr));
    }
    store(params + i, param);
    store(mean + i, m);
    store(square + i, s);
    check.look_at(param);
    check.look_at(m);
    check.look_at(s);
  }
  finite = finite && check.all_finite();
  return i;
}

}  // namespace dpt::flat_avx2
