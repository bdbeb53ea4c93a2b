// Turns images upright that are stored in another orientation. Orientations are 1 to 8, as Exif
// numbers them: 1 is upright, those above 4 exchange height and width.
#pragma once

#include <cstdint>

#include "engine/data/image.h"
#include "engine/data/resize.h"

namespace dpt {

inline bool exchanges_sides(int orientation) {
  return orientation >= 5;
}

/// Returns the upright image of a stored one.
Image turned_upright(const Image& stored, int orientation);

/// Returns the box of the stored image that is `box` of the upright one, which has the size
/// `height` x `width`.
PixelBox stored_box(const PixelBox& box, int orientation, std::int64_t height, std::int64_t width);

/// Returns how a stored image is resized so that its pixels, turned upright, are those of the
/// upright image, resized.
StoredTurn stored_turn(int orientation);

/// Returns the part of a stored image that becomes `part` of the upright one, of the size
/// `height` x `width`, once it is turned.
PicturePart stored_part(const PicturePart& part, int orientation, std::int64_t height,
                        std::int64_t width);

}  // namespace dpt
