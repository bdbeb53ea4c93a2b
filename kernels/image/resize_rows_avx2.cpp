// AVX2 loops of resize_rows.h.
#include "kernels/image/resize_rows.h"

#include <immintrin.h>

namespace dpt::resize_rows {
namespace {

// These functions must be plain functions, not templates. Otherwise the linker could keep this
// file's AVX2 copy of a template for all processors.
__m256i load256(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}

__m128i load128(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}

__m256i rounded_sum(__m256i high, __m256i low) {
  const __m256i sum = _mm256_add_epi32(_mm256_slli_epi32(high, kLowBits), low);
  return _mm256_srai_epi32(_mm256_add_epi32(sum, _mm256_set1_epi32(1 << (kPrecision - 1))),
                           kPrecision);
}

}  // namespace

void along_row_rgb_avx2(const std::uint8_t* from, const PackedTaps& taps, std::uint8_t* to) {
  // Turns two pixels into one word of two 16-bit numbers per channel.
  const __m256i pairs = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1));
  const __m256i dense = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1));
  const std::int32_t* first = taps.first;
  const std::int32_t* weights = taps.weights;
  for (std::int64_t block = 0; block < taps.blocks; ++block, first += kBlock, to += 3 * kBlock) {
    __m256i sums[4];
    // Handle four outputs at a time, so that their sums and addresses stay in registers.
#pragma GCC unroll 2
    for (int half = 0; half < 4; half += 2) {
      const std::uint8_t* near[] = {from + first[half], from + first[half + 1]};
      const std::uint8_t* far[] = {from + first[half + 4], from + first[half + 5]};
      const std::int32_t* packed = weights + 16 * half;
      __m256i high[2], low[2];
#pragma GCC unroll 2
      for (int q = 0; q < 2; ++q) high[q] = low[q] = _mm256_setzero_si256();
      for (std::int64_t group = 0; group < taps.groups; ++group, packed += 64) {
#pragma GCC unroll 2
        for (int q = 0; q < 2; ++q) {
          const __m256i six = _mm256_inserti128_si256(
              _mm256_castsi128_si256(load128(near[q] + 6 * group)), load128(far[q] + 6 * group), 1);
          const __m256i pixels = _mm256_shuffle_epi8(six, pairs);
          high[q] = _mm256_add_epi32(high[q], _mm256_madd_epi16(pixels, load256(packed + 16 * q)));
          low[q] =
              _mm256_add_epi32(low[q], _mm256_madd_epi16(pixels, load256(packed + 16 * q + 8)));
        }
      }
#pragma GCC unroll 2
      for (int q = 0; q < 2; ++q) sums[half + q] = rounded_sum(high[q], low[q]);
    }
    weights += taps.groups * 64;
    const __m256i bytes = _mm256_packus_epi16(_mm256_packs_epi32(sums[0], sums[1]),
                                              _mm256_packs_epi32(sums[2], sums[3]));
    const __m256i pixels = _mm256_shuffle_epi8(bytes, dense);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(pixels));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 12), _mm256_extracti128_si256(pixels, 1));
  }
}

void along_row_grey_avx2(const std::uint8_t* from, const PackedTaps& taps, std::uint8_t* to) {
  const __m256i even = _mm256_set1_epi32(0x00ff00ff);
  const std::int32_t* first = taps.first;
  const std::int32_t* weights = taps.weights;
  for (std::int64_t block = 0; block < taps.blocks; ++block, first += kBlock, to += kBlock) {
    const __m256i at = load256(first);
    __m256i high = _mm256_setzero_si256(), low = high;
    for (std::int64_t group = 0; group < taps.groups; ++group, weights += 32) {
      const __m256i four =
          _mm256_i32gather_epi32(reinterpret_cast<const int*>(from + 4 * group), at, 1);
      const __m256i evens = _mm256_and_si256(four, even);
      const __m256i odds = _mm256_and_si256(_mm256_srli_epi32(four, 8), even);
      high = _mm256_add_epi32(high, _mm256_madd_epi16(evens, load256(weights)));
      low = _mm256_add_epi32(low, _mm256_madd_epi16(evens, load256(weights + 8)));
      high = _mm256_add_epi32(high, _mm256_madd_epi16(odds, load256(weights + 16)));
      low = _mm256_add_epi32(low, _mm256_madd_epi16(odds, load256(weights + 24)));
    }
    const __m256i sum = rounded_sum(high, low);
    const __m128i words =
        _mm_packs_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packus_epi16(words, words));
  }
}

void along_columns_avx2(const std::uint8_t* from, std::int64_t stride, const std::int32_t* words,
                        std::int64_t length, std::int64_t bytes, std::uint8_t* to) {
  const __m256i zero = _mm256_setzero_si256();
  for (std::int64_t x = 0; x < bytes; x += 32) {
    __m256i high[4], low[4];
#pragma GCC unroll 4
    for (int q = 0; q < 4; ++q) high[q] = low[q] = zero;
    const std::uint8_t* row = from + x;
    for (std::int64_t y = 0; y < length; y += 2, row += 2 * stride) {
      const __m256i a = load256(row);
      const __m256i b = y + 1 < length ? load256(row + stride) : a;
      const __m256i near = _mm256_unpacklo_epi8(a, b), far = _mm256_unpackhi_epi8(a, b);
      const __m256i pixels[] = {_mm256_unpacklo_epi8(near, zero), _mm256_unpackhi_epi8(near, zero),
                                _mm256_unpacklo_epi8(far, zero), _mm256_unpackhi_epi8(far, zero)};
      const __m256i above = _mm256_set1_epi32(words[y]);
      const __m256i below = _mm256_set1_epi32(words[y + 1]);
#pragma GCC unroll 4
      for (int q = 0; q < 4; ++q) {
        high[q] = _mm256_add_epi32(high[q], _mm256_madd_epi16(pixels[q], above));
        low[q] = _mm256_add_epi32(low[q], _mm256_madd_epi16(pixels[q], below));
      }
    }
    __m256i sums[4];
#pragma GCC unroll 4
    for (int q = 0; q < 4; ++q) sums[q] = rounded_sum(high[q], low[q]);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + x),
                        _mm256_packus_epi16(_mm256_packs_epi32(sums[0], sums[1]),
                                            _mm256_packs_epi32(sums[2], sums[3])));
  }
}

}  // namespace dpt::resize_rows
