#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace dpt {

/// Returns the bytes of an image file. Throws ErrorKind::data for a file that cannot be read or has
/// more than kMaxImageBytes.
std::vector<std::byte> read_image_file(const std::string& path);

}  // namespace dpt
