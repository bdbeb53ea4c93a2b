#pragma once

#include <cstddef>
#include <vector>

#include "kernels/image/image.h"

namespace dpt {

/// Encodes an image with 1 or 3 channels as a PNG file. Throws ErrorKind::unexpected.
std::vector<std::byte> encode_png(const Image& image);

}  // namespace dpt
