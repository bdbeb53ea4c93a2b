// Colour augmentations of an image, with the bytes and rules of image_ops.h.
//
// A factor of 1 changes nothing, 0 takes away all of the property. REQUIRES: factor >= 0.
#pragma once

#include "kernels/image/image.h"

namespace dpt {

void adjust_brightness(Image& image, double factor);
void adjust_contrast(Image& image, double factor);
/// An image of one channel stays as it is.
void adjust_saturation(Image& image, double factor);
/// The borders of the image stay as they are, and the whole of one below 3 x 3 pixels.
void adjust_sharpness(Image& image, double factor);
/// Turns the hue by `factor` of the circle, REQUIRES: -0.5 <= factor <= 0.5. An image of one
/// channel stays as it is.
void adjust_hue(Image& image, double factor);
/// Luma in every channel.
void to_grayscale(Image& image);
/// Keeps the upper `bits` of each byte, 1 to 8.
void posterize(Image& image, int bits);
/// Inverts the bytes that are not below `threshold`.
void solarize(Image& image, double threshold);
/// Stretches each channel to 0..255.
void autocontrast(Image& image);
/// Spreads each channel's histogram evenly.
void equalize(Image& image);

}  // namespace dpt
