// The orientation that the metadata of an image state: Exif, or XMP if Exif has none. Read as
// Pillow's ImageOps.exif_transpose reads it: damaged metadata count as none.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

namespace dpt {

/// Returns the orientation in Exif data, with or without "Exif\0\0" before them: 2 to 8, or 1 if it
/// is another value or the data are no Exif. Nothing if the tag is missing.
std::optional<int> orientation_in_exif(std::span<const std::byte> exif);

/// Returns the orientation in an XMP packet, 2 to 8; 1 if there is none.
int orientation_in_xmp(std::span<const std::byte> xmp);

/// Metadata of an image; a part that it does not have is empty.
struct ImageMetadata {
  std::span<const std::byte> exif, xmp;
  /// Returns 1 to 8; 1 = the image is stored upright.
  int orientation() const {
    return orientation_in_exif(exif).value_or(xmp.empty() ? 1 : orientation_in_xmp(xmp));
  }
};

// Orientation of a file, one function per format (datasets/image_formats.h): 1 to 8. They read no
// more than the metadata, and never throw.
int jpeg_orientation(std::span<const std::byte> file);
int png_orientation(std::span<const std::byte> file);
int webp_orientation(std::span<const std::byte> file);
int tiff_orientation(std::span<const std::byte> file);

}  // namespace dpt
