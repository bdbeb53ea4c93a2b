// AVX-512 loops of resize_rows.h, with products of bytes (VNNI).
#include "kernels/image/resize_rows.h"

#include <immintrin.h>

namespace dpt::resize_rows {
namespace {

// These functions must be plain functions, not templates. Otherwise the linker could keep this
// file's AVX-512 copy of a template for all processors. The functions pass a full mask to some
// operations, because GCC 12 warns of an uninitialised operand in the forms without a mask.
constexpr __mmask16 kAll32 = 0xffff;
constexpr __mmask64 kAll8 = ~__mmask64{0};

__m512i load512(const void* p) {
  return _mm512_loadu_si512(p);
}

/// Adds the sums of the three parts. The last one includes a half for rounding. Returns a number
/// from 0 to 255 in each word.
__m512i rounded_sum(__m512i a, __m512i b, __m512i c) {
  const __m512i high = _mm512_maskz_slli_epi32(kAll32, a, 2 * kDigitBits);
  const __m512i middle = _mm512_maskz_slli_epi32(kAll32, b, kDigitBits);
  const __m512i sum = _mm512_add_epi32(_mm512_add_epi32(high, middle), c);
  return _mm512_maskz_srli_epi32(kAll32, sum, kPrecision);
}

__m512i half() {
  return _mm512_set1_epi32(1 << (kPrecision - 1));
}

}  // namespace

void along_row_rgb_vnni(const std::uint8_t* from, const PackedTaps& taps, std::uint8_t* to) {
  // Puts the bytes into pixel order. Each output i < 4 has four words (R, G, B, unused). Its value
  // is in the lowest byte of a word, and the value of output i + 4 in the next byte.
  constexpr std::uint8_t kDense[64] = {0, 4, 8,  16, 20, 24, 32, 36, 40, 48, 52, 56, 1,
                                       5, 9, 17, 21, 25, 33, 37, 41, 49, 53, 57, 2};
  const __m512i dense = load512(kDense);
  const std::int32_t* weights = taps.weights;
  for (std::int64_t block = 0; block < taps.blocks; ++block, to += 3 * kBlock) {
    const __m512i near = load512(taps.places + 32 * block);
    const __m512i far = load512(taps.places + 32 * block + 16);
    const std::uint8_t* at = from + taps.first[kBlock * block];
    __m512i near_a = _mm512_setzero_si512(), near_b = near_a, near_c = half();
    __m512i far_a = near_a, far_b = near_a, far_c = near_c;
    std::int64_t groups = taps.groups;
    do {
      const __m512i bytes = load512(at);
      const __m512i near_bytes = _mm512_maskz_permutexvar_epi8(kAll8, near, bytes);
      const __m512i far_bytes = _mm512_maskz_permutexvar_epi8(kAll8, far, bytes);
      near_a = _mm512_dpbusd_epi32(near_a, near_bytes, load512(weights));
      near_b = _mm512_dpbusd_epi32(near_b, near_bytes, load512(weights + 16));
      near_c = _mm512_dpbusd_epi32(near_c, near_bytes, load512(weights + 32));
      far_a = _mm512_dpbusd_epi32(far_a, far_bytes, load512(weights + 48));
      far_b = _mm512_dpbusd_epi32(far_b, far_bytes, load512(weights + 64));
      far_c = _mm512_dpbusd_epi32(far_c, far_bytes, load512(weights + 80));
      at += 12;
      weights += 96;
    } while (--groups > 0);
    const __m512i low = rounded_sum(near_a, near_b, near_c);
    const __m512i high = rounded_sum(far_a, far_b, far_c);
    const __m512i both = _mm512_or_si512(low, _mm512_maskz_slli_epi32(kAll32, high, 8));
    _mm512_mask_storeu_epi64(to, 0x0f, _mm512_maskz_permutexvar_epi8(kAll8, dense, both));
  }
}

void along_row_grey_vnni(const std::uint8_t* from, const PackedTaps& taps, std::uint8_t* to) {
  const std::int32_t* weights = taps.weights;
  for (std::int64_t block = 0; block < taps.blocks; ++block, to += kBlock) {
    const __m256i at =
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(taps.first + block * kBlock));
    __m256i a = _mm256_setzero_si256(), b = a, c = _mm256_set1_epi32(1 << (kPrecision - 1));
    for (std::int64_t group = 0; group < taps.groups; ++group, weights += 24) {
      const __m256i four =
          _mm256_i32gather_epi32(reinterpret_cast<const int*>(from + 4 * group), at, 1);
      const auto* packed = reinterpret_cast<const __m256i*>(weights);
      a = _mm256_dpbusd_epi32(a, four, _mm256_loadu_si256(packed));
      b = _mm256_dpbusd_epi32(b, four, _mm256_loadu_si256(packed + 1));
      c = _mm256_dpbusd_epi32(c, four, _mm256_loadu_si256(packed + 2));
    }
    const __m256i high = _mm256_slli_epi32(a, 2 * kDigitBits);
    const __m256i sum =
        _mm256_add_epi32(_mm256_add_epi32(high, _mm256_slli_epi32(b, kDigitBits)), c);
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to),
                     _mm256_maskz_cvtepi32_epi8(0xff, _mm256_srli_epi32(sum, kPrecision)));
  }
}

void along_columns_vnni(const std::uint8_t* from, std::int64_t stride, const std::int32_t* words,
                        std::int64_t length, std::int64_t bytes, std::uint8_t* to) {
  for (std::int64_t x = 0; x < bytes; x += kColumns) {
    __m512i a[4], b[4], c[4];
#pragma GCC unroll 4
    for (int q = 0; q < 4; ++q) {
      a[q] = b[q] = _mm512_setzero_si512();
      c[q] = half();
    }
    const std::int32_t* parts = words;
    for (std::int64_t y = 0; y < length; y += 4, parts += 3) {
      // After the last row, use any row: its weight is 0.
      const std::uint8_t* row = from + y * stride + x;
      const __m512i r0 = load512(row);
      const __m512i r1 = y + 1 < length ? load512(row + stride) : r0;
      const __m512i r2 = y + 2 < length ? load512(row + 2 * stride) : r0;
      const __m512i r3 = y + 3 < length ? load512(row + 3 * stride) : r0;
      const __m512i near01 = _mm512_unpacklo_epi8(r0, r1), far01 = _mm512_unpackhi_epi8(r0, r1);
      const __m512i near23 = _mm512_unpacklo_epi8(r2, r3), far23 = _mm512_unpackhi_epi8(r2, r3);
      const __m512i pixels[] = {
          _mm512_unpacklo_epi16(near01, near23), _mm512_unpackhi_epi16(near01, near23),
          _mm512_unpacklo_epi16(far01, far23), _mm512_unpackhi_epi16(far01, far23)};
      const __m512i wa = _mm512_set1_epi32(parts[0]), wb = _mm512_set1_epi32(parts[1]);
      const __m512i wc = _mm512_set1_epi32(parts[2]);
#pragma GCC unroll 4
      for (int q = 0; q < 4; ++q) {
        a[q] = _mm512_dpbusd_epi32(a[q], pixels[q], wa);
        b[q] = _mm512_dpbusd_epi32(b[q], pixels[q], wb);
        c[q] = _mm512_dpbusd_epi32(c[q], pixels[q], wc);
      }
    }
    __m512i sums[4];
#pragma GCC unroll 4
    for (int q = 0; q < 4; ++q) sums[q] = rounded_sum(a[q], b[q], c[q]);
    _mm512_storeu_si512(to + x, _mm512_packus_epi16(_mm512_packs_epi32(sums[0], sums[1]),
                                                    _mm512_packs_epi32(sums[2], sums[3])));
  }
}

}  // namespace dpt::resize_rows
