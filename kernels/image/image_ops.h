// Augmentations of an image's pixels. Each function returns the bytes that Pillow 13 returns when
// torchvision.transforms.v2 calls it for a PIL image of mode L (1 channel) or RGB (3). If it
// cannot, its comment states the difference. Angles are in degrees. Points are (x, y) in pixels
// from the upper left corner.
//
// Images have 1 or 3 channels and at least one pixel. All functions are thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "kernels/base/enum_names.h"
#include "kernels/base/types.h"
#include "kernels/image/image.h"

namespace dpt {

enum class Interpolation : std::uint8_t { nearest, bilinear };
constexpr auto enum_names(Interpolation) {
  return std::to_array<EnumName<Interpolation>>(
      {{Interpolation::nearest, "nearest"}, {Interpolation::bilinear, "bilinear"}});
}

enum class PaddingMode : std::uint8_t { constant, edge, reflect, symmetric };
constexpr auto enum_names(PaddingMode) {
  return std::to_array<EnumName<PaddingMode>>({{PaddingMode::constant, "constant"},
                                               {PaddingMode::edge, "edge"},
                                               {PaddingMode::reflect, "reflect"},
                                               {PaddingMode::symmetric, "symmetric"}});
}

/// Colour outside an image, one byte per channel. An image with one channel uses the first byte.
using FillColour = std::array<std::uint8_t, 3>;

struct Point {
  double x = 0, y = 0;
};

/// Pixels added on each side.
struct Padding {
  std::int64_t left = 0, top = 0, right = 0, bottom = 0;
};

/// Map from a pixel (x, y) of the result to its source: (m[0] x + m[1] y + m[2], m[3] x + m[4] y +
/// m[5]).
using AffineMatrix = std::array<double, 6>;

/// Arguments of v2.functional.affine. `angle` is clockwise, and `translate` is in whole pixels.
struct AffineParams {
  double angle = 0;
  std::int64_t translate_x = 0, translate_y = 0;
  double scale = 1;
  double shear_x = 0, shear_y = 0;
};

/// Sets image = result. Keeps the old pixels' memory for this thread's next image.
void replace_image(Image& image, Image&& result);

// Geometry.

void flip_horizontally(Image& image);
void flip_vertically(Image& image);

/// Returns the image with padding. Reflections continue beyond the opposite edge, as in numpy.pad.
/// REQUIRES: no side is negative.
Image padded(const Image& image, const Padding& padding, PaddingMode mode, FillColour fill);

/// Returns the matrix of v2.functional.affine. REQUIRES: params.scale > 0.
AffineMatrix affine_matrix(const AffineParams& params, Point center);

/// Transforms like Image.transform(AFFINE). Pixels whose source is outside the image become `fill`.
Image warped(const Image& image, const AffineMatrix& matrix, std::int64_t height,
             std::int64_t width, Interpolation interpolation, FillColour fill);

/// Rotates anticlockwise like v2.functional.rotate. If `center` is null, rotates about the image's
/// centre. As in Pillow, multiples of 90 degrees then copy pixels, if the result's size allows it.
Image rotated(const Image& image, double angle, Interpolation interpolation, bool expand,
              const Point* center, FillColour fill);

// Blur.

/// Blurs like v2.functional.gaussian_blur with kernel_size [width, height] and sigma [x, y].
/// torchvision adds the float32 products of a two-dimensional kernel in an order chosen by its
/// library. This function adds along rows, then along columns. A byte may differ by 1 if the exact
/// value lies within 0.001 of a half. REQUIRES: odd kernel sides, sigmas above 0.
Image gaussian_blurred(const Image& image, Size2 kernel, double sigma_x, double sigma_y);

}  // namespace dpt
