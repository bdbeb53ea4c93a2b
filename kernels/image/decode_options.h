#pragma once

#include <cstdint>

namespace dpt {

/// Maximum side and decoded bytes of an image; larger images are refused.
inline constexpr std::int64_t kMaxSide = 16384;
inline constexpr std::int64_t kMaxImageBytes = std::int64_t{256} << 20;

struct DecodeOptions {
  /// True to keep a damaged or truncated JPEG as libjpeg decodes it: pixels after the damage are
  /// grey, or for a progressive JPEG those of the earlier scans. Otherwise damage is an error. The
  /// JPEG's header must be intact, and a PNG must be entirely intact.
  bool salvage = false;
  /// True to decode every JPEG with libjpeg instead of kernels/image/jpeg/baseline_jpeg.h; for
  /// tests.
  bool only_libjpeg = false;
  /// True to turn images upright by their metadata (kernels/image/metadata_orientation.h), like
  /// Pillow's ImageOps.exif_transpose. Sizes, parts and pixels are then those of the upright image.
  bool applies_orientation = false;
  /// Orientation of the stored pixels that contain the part; decode_part sets it.
  int stored_orientation = 1;
};

}  // namespace dpt
