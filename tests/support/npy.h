// Writes .npy files, as numpy.save does.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <type_traits>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace dpt::testing {

/// Returns the element type as a header writes it.
template <class T>
std::string npy_type() {
  const char* kind = std::is_floating_point_v<T> ? "f" : std::is_signed_v<T> ? "i" : "u";
  return fmt::format("{}{}{}", sizeof(T) == 1 ? "|" : "<", kind, sizeof(T));
}

/// Returns the bytes of a file with that header text.
inline std::string npy_file(const std::string& header, const std::string& elements,
                            int version = 1) {
  const std::size_t before = version == 1 ? 10 : 12;
  std::string text = header;
  text += std::string(63 - (before + text.size()) % 64, ' ') + "\n";
  std::string file = "\x93NUMPY";
  file += static_cast<char>(version);
  file += '\0';
  for (std::size_t i = 8; i < before; ++i) {
    file += static_cast<char>(text.size() >> (8 * (i - 8)) & 0xFF);
  }
  return file + text + elements;
}

inline std::string npy_header(const std::string& type, const std::vector<std::int64_t>& shape,
                              bool fortran_order = false) {
  return fmt::format("{{'descr': '{}', 'fortran_order': {}, 'shape': ({}{}), }}", type,
                     fortran_order ? "True" : "False", fmt::join(shape, ", "),
                     shape.size() == 1 ? "," : "");
}

template <class T>
std::string npy(const std::vector<std::int64_t>& shape, const std::vector<T>& values) {
  return npy_file(npy_header(npy_type<T>(), shape),
                  {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)});
}

inline void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

}  // namespace dpt::testing
