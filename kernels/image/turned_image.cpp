#include "kernels/image/turned_image.h"

#include <algorithm>
#include <cassert>
#include <cstddef>

namespace dpt {
namespace {

/// These two return true if the stored image runs backwards along a row, or down a column, of the
/// upright image.
bool is_mirrored_across(int orientation) {
  return orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7;
}
bool is_mirrored_down(int orientation) {
  return orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8;
}

/// Copies square tiles, so that reading down the columns of the stored image stays in the cache.
/// `first` is the stored pixel at (0, 0) of the upright image. `down` and `across` are the strides
/// from it to its neighbours.
template <std::ptrdiff_t kChannels>
void copy_tiles(const std::uint8_t* first, std::ptrdiff_t down, std::ptrdiff_t across,
                std::int64_t height, std::int64_t width, std::uint8_t* to) {
  constexpr std::int64_t kTile = 32;
  for (std::int64_t top = 0; top < height; top += kTile) {
    for (std::int64_t left = 0; left < width; left += kTile) {
      const std::int64_t bottom = std::min(top + kTile, height);
      const std::int64_t right = std::min(left + kTile, width);
      for (std::int64_t y = top; y < bottom; ++y) {
        const std::uint8_t* from = first + (y * down + left * across) * kChannels;
        std::uint8_t* pixel = to + (y * width + left) * kChannels;
        for (std::int64_t x = left; x < right; ++x, pixel += kChannels) {
          for (std::ptrdiff_t c = 0; c < kChannels; ++c) pixel[c] = from[c];
          from += across * kChannels;
        }
      }
    }
  }
}

}  // namespace

Image turned_upright(const Image& stored, int orientation) {
  assert(1 <= orientation && orientation <= 8 && (stored.channels == 1 || stored.channels == 3));
  const bool exchanges = exchanges_sides(orientation);
  Image upright{exchanges ? stored.width : stored.height,
                exchanges ? stored.height : stored.width,
                stored.channels,
                {}};
  upright.pixels.resize(stored.pixels.size());
  // Strides of the stored image along the axes of the upright image.
  std::ptrdiff_t down = exchanges ? 1 : stored.width, across = exchanges ? stored.width : 1;
  std::ptrdiff_t first = 0;
  if (is_mirrored_down(orientation)) {
    first += (upright.height - 1) * down;
    down = -down;
  }
  if (is_mirrored_across(orientation)) {
    first += (upright.width - 1) * across;
    across = -across;
  }
  const std::uint8_t* from = stored.pixels.data() + first * stored.channels;
  const auto copy = stored.channels == 1 ? copy_tiles<1> : copy_tiles<3>;
  copy(from, down, across, upright.height, upright.width, upright.pixels.data());
  return upright;
}

PixelBox stored_box(const PixelBox& box, int orientation, std::int64_t height, std::int64_t width) {
  PixelBox stored = box;
  if (is_mirrored_down(orientation)) stored.top = height - box.top - box.height;
  if (is_mirrored_across(orientation)) stored.left = width - box.left - box.width;
  if (!exchanges_sides(orientation)) return stored;
  return {stored.left, stored.top, stored.width, stored.height};
}

StoredTurn stored_turn(int orientation) {
  const bool across = is_mirrored_across(orientation), down = is_mirrored_down(orientation);
  if (exchanges_sides(orientation)) return {across, down, true};
  return {down, across, false};
}

ImagePart stored_part(const ImagePart& part, int orientation, std::int64_t height,
                      std::int64_t width) {
  ImagePart stored = part;
  stored.box = stored_box(part.box, orientation, height, width);
  stored.window = stored_box(part.window, orientation, part.height, part.width);
  if (exchanges_sides(orientation)) {
    stored.height = part.width;
    stored.width = part.height;
  }
  return stored;
}

}  // namespace dpt
