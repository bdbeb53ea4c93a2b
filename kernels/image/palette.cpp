#include "kernels/image/palette.h"

#include <cstring>

#include "kernels/image/pixels.h"

namespace dpt {

void Palette::make_grey() {
  for (std::size_t i = 0; i < colours_.size(); ++i) colours_[i].fill(static_cast<std::uint8_t>(i));
}

void Palette::complete() {
  for (std::size_t i = 0; i < size_; ++i) {
    const auto grey = static_cast<std::uint8_t>(i);
    if (colours_[i] != Colour{grey, grey, grey}) return;
  }
  make_grey();
}

Image Palette::applied(const std::vector<std::uint8_t>& indices, std::int64_t height,
                       std::int64_t width, std::int64_t channels) const {
  Image image{height, width, channels, {}};
  image.pixels.resize(indices.size() * static_cast<std::size_t>(channels));
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const Colour& colour = colours_[indices[i]];
    if (channels == 1) {
      image.pixels[i] = luma(colour.data());
    } else {
      std::memcpy(&image.pixels[3 * i], colour.data(), 3);
    }
  }
  return image;
}

}  // namespace dpt
