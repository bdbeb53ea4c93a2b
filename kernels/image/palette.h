// Palettes of GIF, BMP and TIFF images.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/image/image.h"

namespace dpt {

class Palette {
 public:
  using Colour = std::array<std::uint8_t, 3>;  ///< red, green, blue

  void set(std::size_t index, Colour colour) {
    colours_[index] = colour;
    size_ = index + 1 > size_ ? index + 1 : size_;
  }
  /// Sets all colours to the greys of their indices.
  void make_grey();
  /// Fills the colours that a file lacks, like Pillow: continues a palette that is a ramp of greys,
  /// and fills any other palette with black.
  void complete();
  /// Returns an image of 1 or 3 channels with the colours of `indices`.
  Image applied(const std::vector<std::uint8_t>& indices, std::int64_t height, std::int64_t width,
                std::int64_t channels) const;

 private:
  std::array<Colour, 256> colours_{};
  std::size_t size_ = 0;
};

}  // namespace dpt
