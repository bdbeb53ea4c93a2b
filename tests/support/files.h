// Reads and writes whole files, and captures errors that name a file.
#pragma once

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

/// Returns the message of the error that `call` throws, with `path` removed; "no error" if it
/// returns.
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
