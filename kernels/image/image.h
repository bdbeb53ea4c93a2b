// Images in host memory, and the choice of a part before an image is decoded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kernels/base/enum_names.h"

namespace dpt {

/// 8-bit pixels, (height, width, channels), channels fastest.
struct Image {
  std::int64_t height = 0, width = 0, channels = 0;
  std::vector<std::uint8_t> pixels;
};

/// Non-owning view of an image's pixels.
struct ImageView {
  std::int64_t height = 0, width = 0, channels = 0;
  std::span<const std::uint8_t> pixels;

  ImageView(std::int64_t rows, std::int64_t columns, std::int64_t channels_of_each,
            std::span<const std::uint8_t> bytes)
      : height(rows), width(columns), channels(channels_of_each), pixels(bytes) {}
  ImageView(const Image& image)  // NOLINT(google-explicit-constructor): an image is one
      : ImageView(image.height, image.width, image.channels, image.pixels) {}
};

/// Properties of an image file that are not visible in its decoded pixels.
struct FileFacts {
  int orientation = 1;     ///< Exif orientation, 1 to 8; 1 = upright
  bool is_turned = false;  ///< true if decoding turns the image upright
  int used_bits = 0;  ///< bits that the largest value of a 16-bit image needs; 0 for other images
};

/// A rectangle of pixels.
struct PixelBox {
  std::int64_t top = 0, left = 0, height = 0, width = 0;
  friend bool operator==(const PixelBox&, const PixelBox&) = default;
};

/// Filters of Pillow's Image.resize. Bilinear and bicubic are antialiased.
enum class ResizeFilter : std::uint8_t { nearest, bilinear, bicubic };
constexpr auto enum_names(ResizeFilter) {
  return std::to_array<EnumName<ResizeFilter>>({{ResizeFilter::nearest, "nearest"},
                                                {ResizeFilter::bilinear, "bilinear"},
                                                {ResizeFilter::bicubic, "bicubic"}});
}

/// Part of an image: `box` is resized to `height` x `width`, and `window` of the result is kept.
/// REQUIRES: `box` lies in the image, and `window` in the result.
struct ImagePart {
  PixelBox box;
  std::int64_t height = 0, width = 0;
  PixelBox window;
  /// True if the pixels must equal those of the image decoded at full size, as in Pillow. If false,
  /// a JPEG may be decoded at a reduced size: the smallest at which `box` still has at least
  /// `height` x `width` pixels.
  bool exact = true;
  ResizeFilter filter = ResizeFilter::bilinear;
};

/// Chooses a part of an image. Called once, with the image's height and width.
using ChoosePart = std::function<ImagePart(std::int64_t height, std::int64_t width)>;

}  // namespace dpt
