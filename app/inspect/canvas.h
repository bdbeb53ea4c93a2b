// An image to draw and write on.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

#include "kernels/image/image.h"

namespace dpt {

struct Colour {
  std::uint8_t red, green, blue;
};
inline constexpr Colour kWhite{255, 255, 255}, kInk{40, 40, 40};

/// Image that is initially white. Drawing is clipped to it.
class Canvas {
 public:
  Canvas(std::int64_t width, std::int64_t height);

  /// Fills a rectangle whose upper left corner is (x, y).
  void fill(std::int64_t x, std::int64_t y, std::int64_t width, std::int64_t height, Colour colour);
  /// Draws an image with 1 or 3 channels, each of its pixels as scale x scale pixels.
  void place(std::int64_t x, std::int64_t y, const Image& image, std::int64_t scale);
  /// Writes printable ASCII, with '?' for any other byte. Letters have 5x7 dots and are 6 dots
  /// apart; a dot has scale x scale pixels.
  void write(std::int64_t x, std::int64_t y, std::string_view text, std::int64_t scale = kScale);

  static std::int64_t width_of(std::string_view text) {
    return static_cast<std::int64_t>(text.size()) * kLetterWidth;
  }
  Image take() { return std::move(image_); }

  static constexpr std::int64_t kScale = 2, kLetterWidth = 6 * kScale, kLetterHeight = 7 * kScale;

 private:
  Image image_;
};

}  // namespace dpt
