// A second writer of the safetensors format. It checks nothing, so that tests can write malformed
// files.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "tests/support/files.h"

namespace dpt {

/// Returns length, header and data, without checks.
inline std::string raw_file(const std::string& header, const std::string& data = "",
                            std::int64_t claimed_length = -1) {
  const std::uint64_t length = claimed_length >= 0 ? static_cast<std::uint64_t>(claimed_length)
                                                   : static_cast<std::uint64_t>(header.size());
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + data;
}

}  // namespace dpt
