// Numbers as messages show them.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace dpt {

/// "12.5 MiB".
inline std::string mebibytes(std::uint64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1024.0 * 1024.0));
}

}  // namespace dpt
