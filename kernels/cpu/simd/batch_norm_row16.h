// Rows of batch normalisation in AVX-512 registers.
#pragma once

#include "kernels/cpu/simd/batch_norm_rows.h"
#include "kernels/cpu/simd/vec_avx512.h"

namespace dpt::batch_norm {

/// Sixteen channels of a row. V is avx512::Vec or a type derived from it.
template <class V>
struct Row16 {
  static constexpr std::int64_t kLanes = 16;

  V v;

  static Row16 zero() { return {avx512::Vec::zero()}; }
  static Row16 filled(float x) { return {avx512::Vec::filled(x)}; }
  template <class Value>
  static Row16 load(const Value* from, std::int64_t lanes) {
    return {V::load(from, V::first(lanes))};
  }
  template <class Value>
  void store(Value* to, std::int64_t lanes) const {
    v.store(to, V::first(lanes));
  }
  static Row16 fma(Row16 a, Row16 b, Row16 c) { return {avx512::Vec::fma(a.v, b.v, c.v)}; }
  friend Row16 operator+(Row16 a, Row16 b) { return {a.v + b.v}; }
  friend Row16 operator-(Row16 a, Row16 b) { return {a.v - b.v}; }
  friend Row16 operator*(Row16 a, Row16 b) { return {a.v * b.v}; }
  Row16 relu() const { return {v.relu()}; }
  Row16 at_least_zero() const { return {v.relu()}; }
  Row16 keep_positive(Row16 y) const { return {v.keep_positive(y.v)}; }
};

}  // namespace dpt::batch_norm
