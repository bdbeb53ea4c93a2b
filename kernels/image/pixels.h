// Conversions between pixel types in Pillow's arithmetic (src/libImaging/Convert.c).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/image/image.h"

namespace dpt {

/// Returns the ITU-R 601-2 luma, computed in 16-bit fixed point and rounded to 8 bits.
inline std::uint8_t luma(const std::uint8_t* rgb) {
  return static_cast<std::uint8_t>((rgb[0] * 19595U + rgb[1] * 38470U + rgb[2] * 7471U + 0x8000U) >>
                                   16);
}

/// Converts `count` pixels; `to` may be `rgb`.
inline void rgb_to_grey(const std::uint8_t* rgb, std::size_t count, std::uint8_t* to) {
  for (std::size_t p = 0; p < count; ++p) to[p] = luma(rgb + 3 * p);
}

/// Converts `count` pixels with Adobe's polarity (255: no ink) in place.
inline void inverted_cmyk_to_rgb(std::uint8_t* pixels, std::size_t count) {
  for (std::size_t p = 0; p < count; ++p) {
    const std::uint32_t black = pixels[4 * p + 3];
    for (std::size_t c = 0; c < 3; ++c) {
      const std::uint32_t product = (255U - pixels[4 * p + c]) * black + 128;
      pixels[3 * p + c] = static_cast<std::uint8_t>(black - (((product >> 8) + product) >> 8));
    }
  }
}

/// Converts 1 channel (grey) to 3 (RGB), or 3 to 1.
Image converted(Image image, std::int64_t channels);

}  // namespace dpt
