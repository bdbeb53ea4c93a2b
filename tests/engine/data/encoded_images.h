// PNG and JPEG files encoded for tests.
#pragma once

#include "tests/engine/data/support.h"

namespace dpt::data_test {

/// Encodes a PNG with 1 (grey) or 3 (RGB) channels.
Bytes png(std::uint32_t width, std::uint32_t height, int channels, const Bytes& pixels);

/// Unusual encodings of the same 8x8 image.
enum class PngKind { palette, deep, bits, interlaced, alpha, transparent_palette };
Bytes odd_png(PngKind kind);
/// Returns the RGB pixels of that image: white where (x + y) is even, black elsewhere.
Bytes odd_png_pixels();

/// Returns a PNG whose header gives this size, with hardly any data after it.
Bytes png_header(std::uint32_t width, std::uint32_t height);

/// Encodes a JPEG with 1, 3, or 4 (CMYK) channels.
Bytes jpeg(int width, int height, int channels, const Bytes& pixels);

/// Options of the encoder. Each chroma sample covers `across` x `down` luma samples.
struct JpegStyle {
  int across = 2, down = 2;
  bool progressive = false, arithmetic = false;
  int restart = 0;  ///< blocks between restart markers; 0: no markers
  int quality = 95;
};
Bytes jpeg(int width, int height, int channels, const Bytes& pixels, const JpegStyle& style);
/// Adds Exif data with an orientation to a JPEG.
void set_orientation(Bytes& jpeg, int orientation);
/// Returns a grey JPEG of 8x8 pixels with the given number of scans, up to 384.
Bytes jpeg_of_scans(int scans, const Bytes& pixels);
/// Overwrites the size in a JPEG's frame header.
void set_jpeg_size(Bytes& file, int width, int height);

}  // namespace dpt::data_test
