// Raw file contents, and a second writer of the format that checks nothing, for
// files that lie.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "kernels/base/error.h"
#include "tests/support/temp_dir.h"

namespace dpt {

using testing::TempDir;

inline std::string read_all(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

inline void write_all_text(const std::string& path, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

/// Length, header, data; whatever they say.
inline std::string raw_file(const std::string& header, const std::string& data = "",
                            std::int64_t claimed_length = -1) {
  const std::uint64_t length = claimed_length >= 0 ? static_cast<std::uint64_t>(claimed_length)
                                                   : static_cast<std::uint64_t>(header.size());
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + data;
}

/// The error that `call` throws, as text without `path`; "no error" when it returns.
template <class Call>
std::string error_of(Call call, const std::string& path, ErrorKind kind = ErrorKind::data) {
  try {
    call();
  } catch (const Error& error) {
    std::string text = error.what();
    if (error.kind() != kind) return "wrong kind: " + text;
    for (std::size_t at; (at = text.find(path)) != std::string::npos;) {
      text.replace(at, path.size(), "F");
    }
    return text;
  }
  return "no error";
}

}  // namespace dpt
