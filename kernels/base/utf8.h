// Checks that text is UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace dpt {

/// Returns the offset of the first byte that is not part of well-formed UTF-8, or npos.
inline std::size_t find_bad_utf8(std::string_view text) {
  std::size_t i = 0;
  while (i < text.size()) {
    const auto lead = static_cast<unsigned char>(text[i]);
    std::size_t more = 0;
    std::uint32_t code = lead;
    if (lead >= 0xF0 && lead <= 0xF4) {
      more = 3;
      code = lead & 0x07U;
    } else if (lead >= 0xE0 && lead < 0xF0) {
      more = 2;
      code = lead & 0x0FU;
    } else if (lead >= 0xC2 && lead < 0xE0) {
      more = 1;
      code = lead & 0x1FU;
    } else if (lead >= 0x80) {
      return i;
    }
    if (more >= text.size() - i) return i;
    for (std::size_t k = 1; k <= more; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      if ((next & 0xC0U) != 0x80U) return i;
      code = (code << 6U) | (next & 0x3FU);
    }
    const bool is_overlong = (more == 2 && code < 0x800) || (more == 3 && code < 0x10000);
    const bool is_surrogate = code >= 0xD800 && code <= 0xDFFF;
    if (is_overlong || is_surrogate || code > 0x10FFFF) return i;
    i += more + 1;
  }
  return std::string_view::npos;
}

}  // namespace dpt
