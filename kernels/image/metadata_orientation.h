// The orientation in the metadata of an image. It comes from Exif, or from XMP if Exif has none.
// Follows Pillow's ImageOps.exif_transpose, which ignores damaged metadata.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

namespace dpt {

/// Returns the orientation in Exif data, with or without "Exif\0\0" before them. The result is 2 to
/// 8, or 1 if the value is invalid or the data are not Exif. Returns nothing if the tag is missing.
std::optional<int> orientation_in_exif(std::span<const std::byte> exif);

/// Returns the orientation in an XMP packet, 2 to 8; 1 if the packet has no orientation.
int orientation_in_xmp(std::span<const std::byte> xmp);

/// Metadata of an image. Missing parts are empty.
struct ImageMetadata {
  std::span<const std::byte> exif, xmp;
  /// Returns the orientation, 1 to 8; 1 = the image is stored upright.
  int orientation() const {
    return orientation_in_exif(exif).value_or(xmp.empty() ? 1 : orientation_in_xmp(xmp));
  }
};

}  // namespace dpt
