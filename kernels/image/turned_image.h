// Turns stored images upright. Orientations are 1 to 8, numbered as in Exif. 1 is upright, and
// orientations above 4 exchange height and width.
#pragma once

#include <cstdint>

#include "kernels/image/image.h"
#include "kernels/image/resize.h"

namespace dpt {

inline bool exchanges_sides(int orientation) {
  return orientation >= 5;
}

/// Returns the upright image of a stored one.
Image turned_upright(const Image& stored, int orientation);

/// Returns the box of the stored image that corresponds to `box` of the upright image of size
/// `height` x `width`.
PixelBox stored_box(const PixelBox& box, int orientation, std::int64_t height, std::int64_t width);

/// Returns the turn for resizing a stored image. The resized image, turned upright, then equals the
/// resize of the upright image.
StoredTurn stored_turn(int orientation);

/// Returns the part of a stored image that becomes, when turned upright, `part` of the upright
/// image of size `height` x `width`.
ImagePart stored_part(const ImagePart& part, int orientation, std::int64_t height,
                      std::int64_t width);

}  // namespace dpt
