#pragma once

#include <cstddef>
#include <vector>

#include "kernels/image/image.h"

namespace dpt {

/// Returns a PNG file of an image with 1 or 3 channels. Throws ErrorKind::unexpected.
std::vector<std::byte> encode_png(const Image& image);

}  // namespace dpt
