#include "kernels/image/jpeg/jpeg_codes.h"

#include "kernels/base/cpu_features.h"

namespace dpt::jpeg_loops {

bool are_available() {
  static const bool available = [] {
    const CpuFeatures features = CpuFeatures::detect();
    return features.avx2 && features.bmi2;
  }();
  return available;
}

bool make_codes(const std::uint8_t bits[17], const std::uint8_t* symbols, bool is_dc,
                Codes& codes) {
  for (std::uint32_t& entry : codes.look) entry = 0;
  std::uint32_t code = 0;  // the next code, which has `length` bits
  std::int32_t count = 0;
  for (int length = 1; length <= 16; ++length, code <<= 1) {
    codes.offset[length] = count - static_cast<std::int32_t>(code);
    for (int i = 0; i < bits[length]; ++i, ++code, ++count) {
      if (count == 256 || code >= 1U << length) return false;
      const unsigned int symbol = symbols[count];
      const unsigned int zeros = is_dc ? 0 : symbol >> 4, size = is_dc ? symbol : symbol & 15;
      if (size > (is_dc ? 11 : 10)) return false;
      const auto of_code = static_cast<unsigned int>(length);
      const std::uint32_t packed = size << 24 | zeros << 16 | of_code << 8 | (of_code + size);
      codes.packed[count] = packed;
      if (length > kLookBits) continue;
      const std::uint32_t first = code << (kLookBits - length);
      for (std::uint32_t k = 0; k < 1U << (kLookBits - length); ++k) codes.look[first + k] = packed;
    }
    // A code must not consist of ones only.
    if (code >= 1U << length) return false;
    codes.end[length] = code << (16 - length);
  }
  return true;
}

}  // namespace dpt::jpeg_loops
