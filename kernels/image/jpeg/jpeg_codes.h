// Tables of Huffman codes for jpeg_loops.h.
#pragma once

#include <cstdint>

namespace dpt::jpeg_loops {

/// Returns true if this processor has AVX2 and BMI2, which all loops of jpeg_loops.h need.
bool are_available();

/// Number of bits that one table lookup uses.
inline constexpr int kLookBits = 10;

/// One table of Huffman codes.
struct Codes {
  /// For each value of the next kLookBits bits, the packed code with which these bits begin; 0 if
  /// the code is longer than kLookBits or does not exist. A packed code has four bytes, highest
  /// first: the length of the number after the code, the number of zero coefficients before that
  /// number, the length of the code, and the sum of both lengths.
  std::uint32_t look[1 << kLookBits];
  /// For each length, the first longer code, followed by zeros up to 16 bits.
  std::uint32_t end[17];
  /// For each length, the number to add to a code to get its index in `packed`.
  std::int32_t offset[17];
  std::uint32_t packed[256];
};

/// Fills the codes from a table of a DHT segment. bits[n] is the number of codes of n bits, and
/// `symbols` has their symbols. Returns false if the table is invalid or has symbols that 8-bit
/// samples do not need.
bool make_codes(const std::uint8_t bits[17], const std::uint8_t* symbols, bool is_dc, Codes& codes);

}  // namespace dpt::jpeg_loops
