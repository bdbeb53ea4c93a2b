// Tables of Huffman codes for jpeg_loops.h.
#pragma once

#include <cstdint>

namespace dpt::jpeg_loops {

/// Returns true if this processor has AVX2 and BMI2, which all loops of jpeg_loops.h need.
bool are_available();

/// Bits of a code that are looked up at once.
inline constexpr int kLookBits = 10;

/// One table of Huffman codes.
struct Codes {
  /// For the next kLookBits bits a code with the number behind it, as packed_code has it; 0: the
  /// code is longer, or there is none.
  std::uint32_t look[1 << kLookBits];
  /// Beginning of the codes that are longer than each length, in 16 bits.
  std::uint32_t end[17];
  /// Difference between a code of each length and its place in `packed`.
  std::int32_t offset[17];
  std::uint32_t packed[256];
};

/// Fills the codes of a table as a DHT segment has it: bits[n] codes of n bits, and their symbols.
/// False if it is not a table, or has symbols that 8-bit samples do not need.
bool make_codes(const std::uint8_t bits[17], const std::uint8_t* symbols, bool is_dc, Codes& codes);

}  // namespace dpt::jpeg_loops
