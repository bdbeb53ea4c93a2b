// A second writer of the format that checks nothing, for files that lie.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "tests/support/files.h"

namespace dpt {

/// Length, header, data; whatever they say.
inline std::string raw_file(const std::string& header, const std::string& data = "",
                            std::int64_t claimed_length = -1) {
  const std::uint64_t length = claimed_length >= 0 ? static_cast<std::uint64_t>(claimed_length)
                                                   : static_cast<std::uint64_t>(header.size());
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + data;
}

}  // namespace dpt
