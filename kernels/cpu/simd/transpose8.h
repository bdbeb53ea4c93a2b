// Transposes 8 x 8 units (direct_tile.h) in 256-bit registers. A template over the caller's vector
// type, so that each instruction set has a separate copy.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace dpt::direct {

/// Sets unit i * to_step + r of `to` to unit i of row r for an 8 x 8 block; rows are from_step
/// values apart. Rows from `rows` on are not read and count as zero.
template <class V>
void transpose8(const typename V::Value* from, std::int64_t from_step, std::int64_t rows,
                typename V::Value* to, std::int64_t to_step) {
  const auto put = [&](std::int64_t unit, __m256 eight) {
    _mm256_storeu_ps(reinterpret_cast<float*>(to + unit * to_step * V::kTerms), eight);
  };
  __m256 a[8], b[8];
#pragma GCC unroll 8
  for (int r = 0; r < 8; ++r) {
    a[r] = r < rows ? _mm256_loadu_ps(reinterpret_cast<const float*>(from + r * from_step))
                    : _mm256_setzero_ps();
  }
#pragma GCC unroll 4
  for (int r = 0; r < 8; r += 2) {
    b[r] = _mm256_unpacklo_ps(a[r], a[r + 1]);
    b[r + 1] = _mm256_unpackhi_ps(a[r], a[r + 1]);
  }
#pragma GCC unroll 2
  for (int r = 0; r < 8; r += 4) {
    a[r] = _mm256_shuffle_ps(b[r], b[r + 2], 0x44);
    a[r + 1] = _mm256_shuffle_ps(b[r], b[r + 2], 0xEE);
    a[r + 2] = _mm256_shuffle_ps(b[r + 1], b[r + 3], 0x44);
    a[r + 3] = _mm256_shuffle_ps(b[r + 1], b[r + 3], 0xEE);
  }
#pragma GCC unroll 4
  for (int r = 0; r < 4; ++r) {
    put(r, _mm256_permute2f128_ps(a[r], a[r + 4], 0x20));
    put(r + 4, _mm256_permute2f128_ps(a[r], a[r + 4], 0x31));
  }
}

}  // namespace dpt::direct
