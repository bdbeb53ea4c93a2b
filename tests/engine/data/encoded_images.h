// PNG and JPEG files made for tests.
#pragma once

#include "tests/engine/data/support.h"

namespace dpt::data_test {

/// `channels` 1 (grey) or 3 (RGB).
Bytes png(std::uint32_t width, std::uint32_t height, int channels, const Bytes& pixels);

/// Unusual ways to write the same 8x8 image.
enum class PngKind { palette, deep, bits, interlaced, alpha, transparent_palette };
Bytes odd_png(PngKind kind);
/// Its pixels, RGB: white where (x + y) is even, black elsewhere.
Bytes odd_png_pixels();

/// A PNG with a good header of that size and hardly any data after it.
Bytes png_header(std::uint32_t width, std::uint32_t height);

/// `channels` 1, 3, or 4 (CMYK).
Bytes jpeg(int width, int height, int channels, const Bytes& pixels);

/// How a JPEG is coded. Its luma has (across, down) samples for one of colour.
struct JpegStyle {
  int across = 2, down = 2;
  bool progressive = false, arithmetic = false;
  int restart = 0;  ///< blocks between two restart markers; 0: none
  int quality = 95;
};
Bytes jpeg(int width, int height, int channels, const Bytes& pixels, const JpegStyle& style);
/// Puts Exif data with an orientation into a JPEG.
void set_orientation(Bytes& jpeg, int orientation);
/// A grey one of 8x8 pixels in that many scans; 384 at most.
Bytes jpeg_of_scans(int scans, const Bytes& pixels);
/// Overwrites the size in a JPEG's frame header.
void set_jpeg_size(Bytes& file, int width, int height);

}  // namespace dpt::data_test
