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

/// White at first. Whatever is drawn is clipped to it.
class Canvas {
 public:
  Canvas(std::int64_t width, std::int64_t height);

  /// From (x, y) on.
  void fill(std::int64_t x, std::int64_t y, std::int64_t width, std::int64_t height, Colour colour);
  /// Each pixel of `image`, of 1 channel or 3, becomes scale x scale pixels.
  void place(std::int64_t x, std::int64_t y, const Image& image, std::int64_t scale);
  /// Printable ASCII; '?' for any other byte. Letters are 5x7 pixels of scale x scale, 6 apart.
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
