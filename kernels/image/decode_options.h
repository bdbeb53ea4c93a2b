#pragma once

#include <cstdint>

namespace dpt {

/// Maximum side, and maximum bytes of the decoded pixels, of an image. Larger images are refused.
inline constexpr std::int64_t kMaxSide = 16384;
inline constexpr std::int64_t kMaxImageBytes = std::int64_t{256} << 20;

struct DecodeOptions {
  /// True to keep a damaged or truncated JPEG as libjpeg decodes it: pixels after the damage are
  /// grey or, in a progressive JPEG, those of the earlier scans. If false, damage is an error. In
  /// both cases the header of a JPEG must be intact, and a PNG must be intact entirely.
  bool salvage = false;
  /// True to decode every JPEG with libjpeg instead of kernels/image/jpeg/baseline_jpeg.h. For
  /// tests.
  bool only_libjpeg = false;
  /// True to turn images upright by their metadata (kernels/image/metadata_orientation.h), like
  /// Pillow's ImageOps.exif_transpose. Sizes, parts and pixels are then those of the upright image.
  bool applies_orientation = false;
  /// Orientation of the stored pixels that contain the part. Set by decode_part.
  int stored_orientation = 1;
};

}  // namespace dpt
