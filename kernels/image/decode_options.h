#pragma once

#include <cstdint>

namespace dpt {

/// Limits of the sides and of the decoded bytes, above which an image is refused.
inline constexpr std::int64_t kMaxSide = 16384;
inline constexpr std::int64_t kMaxImageBytes = std::int64_t{256} << 20;

struct DecodeOptions {
  /// A damaged or truncated JPEG is kept, with what libjpeg makes of it: after a tear the pixels
  /// are grey, or for a progressive one those of the scans before it. Without it, it is an error.
  /// What stands before the pixels must be whole, and so must a PNG.
  bool salvage = false;
  /// No JPEG is decoded without libjpeg (kernels/image/jpeg/baseline_jpeg.h); for tests.
  bool only_libjpeg = false;
  /// True to turn images upright by their metadata (kernels/image/metadata_orientation.h), like
  /// Pillow's ImageOps.exif_transpose: sizes, parts and pixels are those of the upright image.
  bool applies_orientation = false;
  /// Orientation of the stored pixels that contain the part; decode_part sets it.
  int stored_orientation = 1;
};

}  // namespace dpt
