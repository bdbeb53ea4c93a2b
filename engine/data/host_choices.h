// Random parameters of augmentations. Drawing them is separate from applying them. The
// distributions, the order of the draws and the rounding are those of torchvision 0.29
// (transforms/v2/_geometry.py, _color.py, _auto_augment.py, _augment.py, make_params and forward of
// each class); the random numbers are DrawStream's.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "engine/data/host_options.h"
#include "engine/data/host_transform.h"
#include "kernels/image/colors.h"
#include "kernels/image/image_ops.h"

namespace dpt {

/// Ranges of RandomAffine. Nothing is drawn for unset ranges.
struct AffineRanges {
  Interval degrees;
  std::optional<Point> translate;  ///< maximum shift, as fractions of width and height
  std::optional<Interval> scale, shear_x, shear_y;
};
AffineParams draw_affine(const AffineRanges& ranges, Size2 image, DrawStream& draws);

/// Ranges of ColorJitter. Unset adjustments are neither drawn nor applied.
struct JitterRanges {
  std::optional<Interval> brightness, contrast, saturation, hue;
};
struct JitterParams {
  std::array<int, 4> order = {0, 1, 2, 3};  ///< order in which the four adjustments below apply
  std::optional<double> brightness, contrast, saturation, hue;
};
JitterParams draw_jitter(const JitterRanges& ranges, DrawStream& draws);
void apply_jitter(const JitterParams& params, Image& image);

/// Operations of TrivialAugmentWide, in the order of torchvision's table.
enum class TrivialOperation : std::uint8_t {
  identity,
  shear_x,
  shear_y,
  translate_x,
  translate_y,
  rotate,
  brightness,
  color,
  contrast,
  sharpness,
  posterize,
  solarize,
  auto_contrast,
  equalize
};
inline constexpr int kTrivialOperations = 14;

struct TrivialParams {
  TrivialOperation operation = TrivialOperation::identity;
  double magnitude = 0;  ///< 0 if the operation has none
};
/// Returns entry `bin` of the operation's magnitudes: float32, as torch.linspace computes them
/// (with fused multiply-adds, as on x86 and ARM). REQUIRES: 0 <= bin < bins, bins >= 2.
double trivial_magnitude(TrivialOperation operation, std::int64_t bin, std::int64_t bins);
TrivialParams draw_trivial(std::int64_t bins, DrawStream& draws);
void apply_trivial(const TrivialParams& params, Interpolation interpolation, FillColour fill,
                   Image& image);

/// Ranges from which RandomErasing draws the rectangle to erase.
struct ErasingRanges {
  Interval scale{0.02, 0.33};  ///< area of the rectangle as a fraction of the image's
  Interval ratio{0.3, 3.3};    ///< height over width
};
/// Draws the rectangle to erase; returns nothing if none of ten tries fits into the image.
std::optional<PixelBox> draw_erasing(const ErasingRanges& ranges, Size2 image, DrawStream& draws);

}  // namespace dpt
