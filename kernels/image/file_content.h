// Names the content of a file that is not an image. Recognises it by its first bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace dpt {

/// Returns true if a file has `text` at byte `at`.
bool has_text(std::span<const std::byte> file, std::string_view text, std::size_t at = 0);

/// Returns the first four bytes as a number, the most significant byte first; 0 if the file has
/// fewer.
std::uint32_t big_endian_32(std::span<const std::byte> file);

/// Returns the name of the first element of an XML or HTML file in lower case: "svg", "html". Empty
/// if the file has no element.
std::string root_element(std::span<const std::byte> file);

struct FileContent {
  std::string what;    ///< "an HTML page"
  std::string remedy;  ///< "download the image again"
};

/// Names the content of a file that is not an image. REQUIRES: the file is not empty.
FileContent content_of(std::span<const std::byte> file);

}  // namespace dpt
