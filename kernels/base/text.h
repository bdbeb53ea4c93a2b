// Numbers and texts formatted for messages.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace dpt {

/// Returns the text with control characters, except those in `kept`, shown as \xNN. Untrusted text
/// must not control the reader's terminal. (In UTF-8, C2 80 to C2 9F are control characters, too.)
inline std::string printable(std::string_view text, std::string_view kept = {}) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool is_c1 = byte == 0xc2 && i + 1 < text.size() &&
                       static_cast<unsigned char>(text[i + 1]) >= 0x80 &&
                       static_cast<unsigned char>(text[i + 1]) < 0xa0;
    if (is_c1) {
      out += fmt::format("\\xc2\\x{:02x}", static_cast<unsigned char>(text[++i]));
    } else if ((byte < 0x20 || byte == 0x7f) && kept.find(text[i]) == kept.npos) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += text[i];
    }
  }
  return out;
}

/// Formats a size: "12.5 MiB".
inline std::string mebibytes(std::uint64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1024.0 * 1024.0));
}

/// Formats a count: "1 image", "2 images".
template <class Count>
std::string counted(Count count, const std::string& noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

/// Formats a duration: "4.5 s", or "0.05 s" below a second, with up to three significant digits.
inline std::string seconds_text(std::chrono::steady_clock::duration time) {
  const double seconds = std::chrono::duration<double>(time).count();
  return seconds < 1 ? fmt::format("{:.3g} s", seconds) : fmt::format("{:.1f} s", seconds);
}

}  // namespace dpt
