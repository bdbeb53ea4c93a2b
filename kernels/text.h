// Numbers as messages show them.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <string>

namespace dpt {

/// "12.5 MiB".
inline std::string mebibytes(std::uint64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1024.0 * 1024.0));
}

/// "1 image", "2 images".
template <class Count>
std::string counted(Count count, const std::string& noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

/// Formats a duration: "4.5 s"; below a second with three digits: "0.05 s".
inline std::string seconds_text(std::chrono::steady_clock::duration time) {
  const double seconds = std::chrono::duration<double>(time).count();
  return seconds < 1 ? fmt::format("{:.3g} s", seconds) : fmt::format("{:.1f} s", seconds);
}

}  // namespace dpt
