// Orientation of a file, 1 to 8. There is one function per format (kernels/image/image_formats.h).
// The functions read only the metadata and never throw.
#pragma once

#include <cstddef>
#include <span>

namespace dpt {

int jpeg_orientation(std::span<const std::byte> file);
int png_orientation(std::span<const std::byte> file);
int webp_orientation(std::span<const std::byte> file);
int tiff_orientation(std::span<const std::byte> file);

}  // namespace dpt
