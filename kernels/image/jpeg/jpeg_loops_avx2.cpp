// AVX2 and BMI2 loops of jpeg_loops.h.
#include "kernels/image/jpeg/jpeg_loops.h"

#include <immintrin.h>

namespace dpt::jpeg_loops {
namespace {

// These functions must be plain functions, not templates in a header. Otherwise the linker could
// keep this file's AVX2 copy of a template for all processors.

/// The next bits of the scan, in registers.
struct Bits {
  const std::uint8_t* next;
  std::uint64_t window;
  unsigned int count;

  /// Refills the window to at least 56 bits.
  void refill() {
    std::uint64_t bytes;
    __builtin_memcpy(&bytes, next, sizeof bytes);
    window |= __builtin_bswap64(bytes) >> count;
    next += (63 - count) >> 3;
    count |= 56;
  }
  void drop(unsigned int bits) {
    window <<= bits;
    count -= bits;
  }
};

/// Returns a code longer than kLookBits bits, packed as in Codes; 0 if no such code exists.
std::uint32_t long_code(const Codes& codes, std::uint64_t window) {
  const auto next = static_cast<std::uint32_t>(window >> 48);
  int length = kLookBits + 1;
  while (length <= 16 && next >= codes.end[length]) ++length;
  if (length > 16) return 0;
  return codes.packed[codes.offset[length] + static_cast<std::int32_t>(next >> (16 - length))];
}

/// Returns the number after the code. REQUIRES: it has at least one bit.
std::int32_t number(std::uint64_t window, std::uint32_t packed) {
  const std::uint64_t bits = window << (packed >> 8 & 0xff);
  const std::uint32_t size = packed >> 24;
  const auto value = static_cast<std::int32_t>(bits >> (64 - size));
  // A number that begins with 0 is below zero: T.81, F.2.2.1.
  const auto is_negative = static_cast<std::int32_t>(~static_cast<std::int64_t>(bits) >> 63);
  return value + (is_negative & (1 - (1 << size)));
}

/// Decodes one block. Returns false if it is faulty. If kStore, `block` must be zeros on entry.
template <bool kStore>
inline __attribute__((always_inline)) bool read_block(Bits& bits, const BlockKind& kind,
                                                      std::int32_t& dc, std::int16_t* block,
                                                      bool* has_ac) {
  bits.refill();
  std::uint32_t packed = kind.dc->look[bits.window >> (64 - kLookBits)];
  if (packed == 0) packed = long_code(*kind.dc, bits.window);
  if (packed == 0) return false;
  if (packed >> 24 != 0) dc += number(bits.window, packed);
  bits.drop(packed & 0xff);
  // Check skipped blocks, too, because later DC values build on theirs.
  if (dc > 32767 || dc < -32767) return false;
  if constexpr (kStore) {
    const std::int32_t mean = dc * kind.quantisers[0];
    // 8-bit samples give at most 1024 plus rounding. Later steps might overflow for larger values.
    if (mean > 8191 || mean < -8191) return false;
    block[0] = static_cast<std::int16_t>(mean);
  }
  const std::uint32_t* look = kind.ac->look;
  unsigned int k = 1;
  for (;;) {
    bits.refill();
    // Two codes with their numbers take 52 bits at most.
    for (int i = 0; i < 2; ++i) {
      packed = look[bits.window >> (64 - kLookBits)];
      if (__builtin_expect(packed == 0, 0)) {
        packed = long_code(*kind.ac, bits.window);
        if (packed == 0) return false;
      }
      const unsigned int zeros = packed >> 16 & 0xff;
      if (__builtin_expect(packed >> 24 == 0, 0)) {
        bits.drop(packed & 0xff);
        if (zeros != 15) {
          if constexpr (kStore) *has_ac = k > 1;
          return true;
        }
        k += 16;
      } else {
        k += zeros;
        if constexpr (kStore) {
          block[kOrder[k]] =
              static_cast<std::int16_t>(number(bits.window, packed) * kind.quantisers[k]);
        }
        bits.drop(packed & 0xff);
        ++k;
      }
      if (k >= 64) {
        if constexpr (kStore) *has_ac = true;
        return k == 64;
      }
    }
  }
}

Bits bits_of(const Scan& scan) {
  return {scan.next, scan.window, scan.count};
}

void keep(Scan& scan, const Bits& bits) {
  scan.next = bits.next;
  scan.window = bits.window;
  scan.count = bits.count;
}

}  // namespace

void skip_mcus(Scan& scan, std::int64_t mcus) {
  Bits bits = bits_of(scan);
  for (std::int64_t mcu = 0; mcu < mcus && scan.is_good; ++mcu) {
    for (int i = 0; i < scan.block_count && scan.is_good; ++i) {
      const BlockKind& kind = scan.blocks[i];
      std::int32_t dc = scan.dc[kind.component];
      scan.is_good = read_block<false>(bits, kind, dc, nullptr, nullptr);
      scan.dc[kind.component] = dc;
    }
    // At most the bytes of one MCU are read after the end.
    scan.is_good = scan.is_good && bits.next <= scan.end + 8;
  }
  keep(scan, bits);
}

void read_mcu(Scan& scan, Block* blocks, bool* has_ac) {
  Bits bits = bits_of(scan);
  for (int i = 0; i < scan.block_count && scan.is_good; ++i) {
    const BlockKind& kind = scan.blocks[i];
    std::int32_t dc = scan.dc[kind.component];
    if (kind.is_wanted) {
      __builtin_memset(blocks[i], 0, sizeof(Block));
      scan.is_good = read_block<true>(bits, kind, dc, blocks[i], has_ac + i);
    } else {
      scan.is_good = read_block<false>(bits, kind, dc, nullptr, nullptr);
    }
    scan.dc[kind.component] = dc;
  }
  scan.is_good = scan.is_good && bits.next <= scan.end + 8;
  keep(scan, bits);
}

void fill_block(std::int16_t mean, int size, BlockPlace place) {
  std::int32_t value = (mean + 4) >> 3;
  value = value < -128 ? 0 : value > 127 ? 255 : value + 128;
  const std::uint64_t row = static_cast<std::uint64_t>(value) * 0x0101010101010101U;
  if (size == 8) {
    for (int y = 0; y < 8; ++y) __builtin_memcpy(place.to + y * place.stride, &row, 8);
  } else if (size == 4) {
    for (int y = 0; y < 4; ++y) __builtin_memcpy(place.to + y * place.stride, &row, 4);
  } else {
    for (int y = 0; y < size; ++y) {
      for (int x = 0; x < size; ++x)
        place.to[y * place.stride + x] = static_cast<std::uint8_t>(value);
    }
  }
}

namespace {

// The constants of jidctint.c, times 2^13.
constexpr int k0_298 = 2446, k0_390 = 3196, k0_541 = 4433, k0_765 = 6270, k0_899 = 7373,
              k1_175 = 9633, k1_501 = 12299, k1_847 = 15137, k1_961 = 16069, k2_053 = 16819,
              k2_562 = 20995, k3_072 = 25172;
constexpr int kConstBits = 13, kPass1Bits = 2;

/// A 32-bit number for each 16-bit lane of a register. `low` has the numbers of the lower four
/// lanes of each half, and `high` those of the upper four.
struct Wide {
  __m256i low, high;
};

Wide operator+(Wide a, Wide b) {
  return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
}

Wide operator-(Wide a, Wide b) {
  return {_mm256_sub_epi32(a.low, b.low), _mm256_sub_epi32(a.high, b.high)};
}

/// Returns a * of_a + b * of_b for each pair (a, b).
Wide products(Wide pairs, int of_a, int of_b) {
  const __m256i by = _mm256_set1_epi32((of_b << 16) | (of_a & 0xffff));
  return {_mm256_madd_epi16(pairs.low, by), _mm256_madd_epi16(pairs.high, by)};
}

Wide pairs_of(__m256i a, __m256i b) {
  return {_mm256_unpacklo_epi16(a, b), _mm256_unpackhi_epi16(a, b)};
}

/// Returns the values times 2^13.
Wide scaled(__m256i a) {
  const __m256i zero = _mm256_setzero_si256();
  return {_mm256_srai_epi32(_mm256_unpacklo_epi16(zero, a), 16 - kConstBits),
          _mm256_srai_epi32(_mm256_unpackhi_epi16(zero, a), 16 - kConstBits)};
}

template <int kShift>
__m256i descaled(Wide a) {
  return _mm256_packs_epi32(_mm256_srai_epi32(a.low, kShift), _mm256_srai_epi32(a.high, kShift));
}

/// Runs one pass of eight-point transforms over v[0] to v[7] in each lane of 16 bits.
template <int kShift>
inline __attribute__((always_inline)) void transform(__m256i v[8]) {
  // Even part.
  const Wide z26 = pairs_of(v[2], v[6]);
  const Wide e2 = products(z26, k0_541, k0_541 - k1_847);
  const Wide e3 = products(z26, k0_541 + k0_765, k0_541);
  const __m256i round = _mm256_set1_epi32(1 << (kShift - 1));
  const Wide half{round, round};
  const Wide e0 = scaled(_mm256_add_epi16(v[0], v[4])) + half;
  const Wide e1 = scaled(_mm256_sub_epi16(v[0], v[4])) + half;
  const Wide even[4] = {e0 + e3, e1 + e2, e1 - e2, e0 - e3};
  // Odd part.
  const Wide z34 = pairs_of(_mm256_add_epi16(v[7], v[3]), _mm256_add_epi16(v[5], v[1]));
  const Wide z3 = products(z34, k1_175 - k1_961, k1_175);
  const Wide z4 = products(z34, k1_175, k1_175 - k0_390);
  const Wide z71 = pairs_of(v[7], v[1]), z53 = pairs_of(v[5], v[3]);
  const Wide odd[4] = {
      products(z71, -k0_899, k1_501 - k0_899) + z4, products(z53, -k2_562, k3_072 - k2_562) + z3,
      products(z53, k2_053 - k2_562, -k2_562) + z4, products(z71, k0_298 - k0_899, -k0_899) + z3};
  for (int i = 0; i < 4; ++i) {
    v[i] = descaled<kShift>(even[i] + odd[i]);
    v[7 - i] = descaled<kShift>(even[i] - odd[i]);
  }
}

/// Transposes rows to columns, separately in each half of the registers.
inline __attribute__((always_inline)) void transpose(__m256i v[8]) {
  __m256i a[8], b[8];
  for (int i = 0; i < 4; ++i) {
    a[2 * i] = _mm256_unpacklo_epi16(v[2 * i], v[2 * i + 1]);
    a[2 * i + 1] = _mm256_unpackhi_epi16(v[2 * i], v[2 * i + 1]);
  }
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 2; ++j) {
      b[4 * i + 2 * j] = _mm256_unpacklo_epi32(a[4 * i + j], a[4 * i + 2 + j]);
      b[4 * i + 2 * j + 1] = _mm256_unpackhi_epi32(a[4 * i + j], a[4 * i + 2 + j]);
    }
  }
  for (int i = 0; i < 4; ++i) {
    v[2 * i] = _mm256_unpacklo_epi64(b[i], b[4 + i]);
    v[2 * i + 1] = _mm256_unpackhi_epi64(b[i], b[4 + i]);
  }
}

void store_rows(__m128i rows, std::uint8_t* to, std::ptrdiff_t stride) {
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to), rows);
  _mm_storel_epi64(reinterpret_cast<__m128i*>(to + stride), _mm_unpackhi_epi64(rows, rows));
}

}  // namespace

namespace {

/// Loads row `i` of block a into the lower half, and row `i` of block b into the upper half.
__m256i load_rows(const Block& a, const Block& b, int i) {
  const __m128i of_a = _mm_loadu_si128(reinterpret_cast<const __m128i*>(a + 8 * i));
  const __m128i of_b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(b + 8 * i));
  return _mm256_inserti128_si256(_mm256_castsi128_si256(of_a), of_b, 1);
}

void inverse_dct_8(const Block& a, BlockPlace of_a, const Block& b, BlockPlace of_b) {
  __m256i v[8];
  for (int i = 0; i < 8; ++i) v[i] = load_rows(a, b, i);
  transform<kConstBits - kPass1Bits>(v);
  transpose(v);
  transform<kConstBits + kPass1Bits + 3>(v);
  // v[i] is column i. Convert two columns at a time to bytes, with the two bytes of a row side by
  // side.
  const __m256i side_by_side = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15));
  const __m256i centre = _mm256_set1_epi8(-128);
  __m256i two[4];
  for (int i = 0; i < 4; ++i) {
    const __m256i bytes = _mm256_packs_epi16(v[2 * i], v[2 * i + 1]);
    two[i] = _mm256_shuffle_epi8(_mm256_xor_si256(bytes, centre), side_by_side);
  }
  const __m256i left_low = _mm256_unpacklo_epi16(two[0], two[1]);
  const __m256i left_high = _mm256_unpackhi_epi16(two[0], two[1]);
  const __m256i right_low = _mm256_unpacklo_epi16(two[2], two[3]);
  const __m256i right_high = _mm256_unpackhi_epi16(two[2], two[3]);
  const __m256i rows[] = {
      _mm256_unpacklo_epi32(left_low, right_low), _mm256_unpackhi_epi32(left_low, right_low),
      _mm256_unpacklo_epi32(left_high, right_high), _mm256_unpackhi_epi32(left_high, right_high)};
  for (int i = 0; i < 4; ++i) {
    store_rows(_mm256_castsi256_si128(rows[i]), of_a.to + 2 * i * of_a.stride, of_a.stride);
    store_rows(_mm256_extracti128_si256(rows[i], 1), of_b.to + 2 * i * of_b.stride, of_b.stride);
  }
}

// Constants of jidctred.c, times 2^13.
constexpr int k0_211 = 1730, k0_509 = 4176, k0_601 = 4926, k0_720 = 5906, k0_850 = 6967,
              k1_061 = 8697, k1_272 = 10426, k1_451 = 11893, k2_172 = 17799, k3_624 = 29692;

/// Runs one pass from eight values to four. v[4] is unused.
template <int kShift>
inline __attribute__((always_inline)) void transform_to_4(__m256i v[8]) {
  const __m256i round = _mm256_set1_epi32(1 << (kShift - 1));
  const Wide e0 = scaled(v[0]), half{round, round};
  const Wide e2 = products(pairs_of(v[2], v[6]), k1_847, -k0_765);
  const Wide mean = e0 + e0 + half;
  const Wide even[2] = {mean + e2, mean - e2};
  const Wide z75 = pairs_of(v[7], v[5]), z31 = pairs_of(v[3], v[1]);
  const Wide inner = products(z75, -k0_211, k1_451) + products(z31, -k2_172, k1_061);
  const Wide outer = products(z75, -k0_509, -k0_601) + products(z31, k0_899, k2_562);
  v[0] = descaled<kShift>(even[0] + outer);
  v[3] = descaled<kShift>(even[0] - outer);
  v[1] = descaled<kShift>(even[1] + inner);
  v[2] = descaled<kShift>(even[1] - inner);
}

void inverse_dct_4(const Block& a, BlockPlace of_a, const Block& b, BlockPlace of_b) {
  __m256i v[8];
  for (int i = 0; i < 8; ++i) v[i] = load_rows(a, b, i);
  transform_to_4<kConstBits - kPass1Bits + 1>(v);
  for (int i = 4; i < 8; ++i) v[i] = _mm256_setzero_si256();
  transpose(v);
  transform_to_4<kConstBits + kPass1Bits + 3 + 1>(v);
  // v[i] is column i, with its four rows in the lower lanes of each half.
  const __m256i centre = _mm256_set1_epi8(-128);
  const __m256i side_by_side = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, -1, -1, -1, -1, -1, -1, -1, -1));
  const auto two = [&](__m256i left, __m256i right) {
    return _mm256_shuffle_epi8(_mm256_xor_si256(_mm256_packs_epi16(left, right), centre),
                               side_by_side);
  };
  const __m256i rows = _mm256_unpacklo_epi16(two(v[0], v[1]), two(v[2], v[3]));
  std::uint32_t words[8];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(words), rows);
  for (int y = 0; y < 4; ++y) {
    __builtin_memcpy(of_a.to + y * of_a.stride, words + y, 4);
    __builtin_memcpy(of_b.to + y * of_b.stride, words + 4 + y, 4);
  }
}

std::int32_t saturated(std::int32_t value, std::int32_t most) {
  return value < -most - 1 ? -most - 1 : value > most ? most : value;
}

/// Runs one pass of jidctred.c's 2x2 transform. It turns the mean and the odd values into two
/// values.
void transform_to_2(const std::int32_t v[5], int shift, std::int32_t to[2]) {
  const std::int32_t mean = v[0] * (1 << (kConstBits + 2)) + (1 << (shift - 1));
  const std::int32_t odd = v[4] * -k0_720 + v[3] * k0_850 + v[2] * -k1_272 + v[1] * k3_624;
  to[0] = saturated((mean + odd) >> shift, 32767);
  to[1] = saturated((mean - odd) >> shift, 32767);
}

void inverse_dct_2(const Block& block, BlockPlace place) {
  constexpr int kUsed[5] = {0, 1, 3, 5, 7};
  std::int32_t columns[5][2];
  for (int i = 0; i < 5; ++i) {
    std::int32_t v[5];
    for (int j = 0; j < 5; ++j) v[j] = block[8 * kUsed[j] + kUsed[i]];
    transform_to_2(v, kConstBits - kPass1Bits + 2, columns[i]);
  }
  for (int y = 0; y < 2; ++y) {
    std::int32_t v[5], row[2];
    for (int i = 0; i < 5; ++i) v[i] = columns[i][y];
    transform_to_2(v, kConstBits + kPass1Bits + 3 + 2, row);
    for (int x = 0; x < 2; ++x) {
      place.to[y * place.stride + x] = static_cast<std::uint8_t>(saturated(row[x], 127) + 128);
    }
  }
}

}  // namespace

bool inverse_dct(const Block& a, BlockPlace of_a, const Block& b, BlockPlace of_b, int size) {
  // If all other rows are zero, libjpeg shifts the first row left by two bits, so its values must
  // be in [-8192, 8192).
  const __m256i moved = _mm256_add_epi16(load_rows(a, b, 0), _mm256_set1_epi16(8192));
  if (!_mm256_testz_si256(moved, _mm256_set1_epi16(static_cast<short>(0xc000)))) return false;
  if (size == 8) {
    inverse_dct_8(a, of_a, b, of_b);
  } else if (size == 4) {
    inverse_dct_4(a, of_a, b, of_b);
  } else {
    inverse_dct_2(a, of_a);
    inverse_dct_2(b, of_b);
  }
  return true;
}

namespace {

__m256i load_wide(const std::uint8_t* from) {
  return _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

__m256i load_words(const std::int16_t* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

__m256i three_times(__m256i a) {
  return _mm256_add_epi16(_mm256_add_epi16(a, a), a);
}

}  // namespace

void weighted_rows(const std::uint8_t* near, const std::uint8_t* far, std::int64_t count,
                   std::int16_t* to) {
  for (std::int64_t i = 0; i < count; i += 16) {
    const __m256i sum = _mm256_add_epi16(three_times(load_wide(near + i)), load_wide(far + i));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), sum);
  }
}

void widened_row(const std::uint8_t* from, std::int64_t count, std::int16_t* to) {
  for (std::int64_t i = 0; i < count; i += 16) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), load_wide(from + i));
  }
}

void doubled_row(const std::int16_t* from, std::int64_t count, int before, int behind, int shift,
                 std::uint8_t* to) {
  const __m256i of_before = _mm256_set1_epi16(static_cast<short>(before));
  const __m256i of_behind = _mm256_set1_epi16(static_cast<short>(behind));
  const __m128i by = _mm_cvtsi32_si128(shift);
  for (std::int64_t i = 0; i < count; i += 16) {
    const __m256i three = three_times(load_words(from + i));
    const __m256i left =
        _mm256_add_epi16(_mm256_add_epi16(three, load_words(from + i - 1)), of_before);
    const __m256i right =
        _mm256_add_epi16(_mm256_add_epi16(three, load_words(from + i + 1)), of_behind);
    // Each value is below 256. The left one becomes the lower byte of a word.
    const __m256i both = _mm256_or_si256(_mm256_srl_epi16(left, by),
                                         _mm256_slli_epi16(_mm256_srl_epi16(right, by), 8));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 2 * i), both);
  }
}

void rgb_row(const std::uint8_t* y, const std::uint8_t* cb, const std::uint8_t* cr,
             std::int64_t count, std::uint8_t* to) {
  // The formulas are R = Y + 1.402 Cr, G = Y - 0.34414 Cb - 0.71414 Cr, B = Y + 1.772 Cb. Each
  // product is rounded as (FIX(x) * c + 2^15) >> 16, where FIX(x) is x * 2^16, rounded. A factor f
  // that does not fit into 16 bits is reduced by k * 2^16, and k * c is added separately. The
  // vectors compute ((2 * c * f >> 16) + 1) >> 1, which rounds in the same way.
  const __m256i centre = _mm256_set1_epi16(128), one = _mm256_set1_epi16(1);
  const __m256i of_red = _mm256_set1_epi16(26345);    // FIX(1.402) - 2^16
  const __m256i of_blue = _mm256_set1_epi16(-14942);  // FIX(1.772) - 2 * 2^16
  const __m256i of_green =
      _mm256_set1_epi32(18734 << 16 | (-22554 & 0xffff));  // 2^16 - FIX(0.71414)
  const __m256i half = _mm256_set1_epi32(1 << 15);
  // Shuffle masks that move the sixteen values of a colour to their bytes of the three output
  // vectors. -1 writes 0.
  const __m128i red0 = _mm_setr_epi8(0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1, -1, 5);
  const __m128i red1 = _mm_setr_epi8(-1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1, 10, -1);
  const __m128i red2 =
      _mm_setr_epi8(-1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15, -1, -1);
  const __m128i green0 = _mm_setr_epi8(-1, 0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1, -1);
  const __m128i green1 = _mm_setr_epi8(5, -1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1, 10);
  const __m128i green2 =
      _mm_setr_epi8(-1, -1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15, -1);
  const __m128i blue0 = _mm_setr_epi8(-1, -1, 0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1);
  const __m128i blue1 = _mm_setr_epi8(-1, 5, -1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1);
  const __m128i blue2 =
      _mm_setr_epi8(10, -1, -1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15);
  for (std::int64_t i = 0; i < count; i += 16, to += 48) {
    const __m256i luma = load_wide(y + i);
    const __m256i b = _mm256_sub_epi16(load_wide(cb + i), centre);
    const __m256i r = _mm256_sub_epi16(load_wide(cr + i), centre);
    const __m256i twice_b = _mm256_add_epi16(b, b), twice_r = _mm256_add_epi16(r, r);
    const __m256i more_red =
        _mm256_srai_epi16(_mm256_add_epi16(_mm256_mulhi_epi16(twice_r, of_red), one), 1);
    const __m256i more_blue =
        _mm256_srai_epi16(_mm256_add_epi16(_mm256_mulhi_epi16(twice_b, of_blue), one), 1);
    const __m256i low = _mm256_madd_epi16(_mm256_unpacklo_epi16(b, r), of_green);
    const __m256i high = _mm256_madd_epi16(_mm256_unpackhi_epi16(b, r), of_green);
    const __m256i more_green =
        _mm256_packs_epi32(_mm256_srai_epi32(_mm256_add_epi32(low, half), 16),
                           _mm256_srai_epi32(_mm256_add_epi32(high, half), 16));
    const __m256i red = _mm256_add_epi16(_mm256_add_epi16(luma, r), more_red);
    const __m256i green = _mm256_add_epi16(_mm256_sub_epi16(luma, r), more_green);
    const __m256i blue = _mm256_add_epi16(_mm256_add_epi16(luma, twice_b), more_blue);
    const auto bytes = [](__m256i words) {
      return _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    };
    const __m128i rs = bytes(red), gs = bytes(green), bs = bytes(blue);
    auto* out = reinterpret_cast<__m128i*>(to);
    _mm_storeu_si128(
        out, _mm_or_si128(_mm_or_si128(_mm_shuffle_epi8(rs, red0), _mm_shuffle_epi8(gs, green0)),
                          _mm_shuffle_epi8(bs, blue0)));
    _mm_storeu_si128(out + 1, _mm_or_si128(_mm_or_si128(_mm_shuffle_epi8(rs, red1),
                                                        _mm_shuffle_epi8(gs, green1)),
                                           _mm_shuffle_epi8(bs, blue1)));
    _mm_storeu_si128(out + 2, _mm_or_si128(_mm_or_si128(_mm_shuffle_epi8(rs, red2),
                                                        _mm_shuffle_epi8(gs, green2)),
                                           _mm_shuffle_epi8(bs, blue2)));
  }
}

}  // namespace dpt::jpeg_loops
