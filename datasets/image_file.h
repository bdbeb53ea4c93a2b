#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace dpt {

/// Returns the bytes of an image file, at most kMaxImageBytes. Throws ErrorKind::data.
std::vector<std::byte> read_image_file(const std::string& path);

}  // namespace dpt
