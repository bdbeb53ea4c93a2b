#include "kernels/image/pixels.h"

#include <cstring>

namespace dpt {

Image converted(Image image, std::int64_t channels) {
  if (image.channels == channels) return image;
  const auto pixels = static_cast<std::size_t>(image.width * image.height);
  Image result{image.height, image.width, channels, {}};
  result.pixels.resize(pixels * static_cast<std::size_t>(channels));
  if (channels == 1) {
    rgb_to_grey(image.pixels.data(), pixels, result.pixels.data());
  } else {
    for (std::size_t p = 0; p < pixels; ++p) std::memset(&result.pixels[3 * p], image.pixels[p], 3);
  }
  return result;
}

}  // namespace dpt
