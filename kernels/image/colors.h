// Colour augmentations of an image, with the bytes and rules of image_ops.h.
//
// A factor of 1 changes nothing, and a factor of 0 removes the property entirely. REQUIRES: factor
// >= 0.
#pragma once

#include "kernels/image/image.h"

namespace dpt {

void adjust_brightness(Image& image, double factor);
void adjust_contrast(Image& image, double factor);
/// Scales the saturation. An image of one channel stays unchanged.
void adjust_saturation(Image& image, double factor);
/// Scales the sharpness. The border pixels stay unchanged, and so does any image below 3 x 3
/// pixels.
void adjust_sharpness(Image& image, double factor);
/// Rotates the hue by `factor` of the colour circle. An image of one channel stays unchanged.
/// REQUIRES: -0.5 <= factor <= 0.5.
void adjust_hue(Image& image, double factor);
/// Sets every channel to the luma.
void to_grayscale(Image& image);
/// Keeps the upper `bits` of each byte, 1 to 8.
void posterize(Image& image, int bits);
/// Inverts the bytes that are at least `threshold`.
void solarize(Image& image, double threshold);
/// Stretches each channel to 0..255.
void autocontrast(Image& image);
/// Spreads each channel's histogram evenly.
void equalize(Image& image);

}  // namespace dpt
