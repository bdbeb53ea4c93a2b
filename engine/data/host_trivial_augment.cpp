// TrivialAugmentWide (Mueller and Hutter, TrivialAugment, 2021), as in torchvision.
#include <cassert>
#include <cmath>
#include <numbers>

#include "engine/data/host_choices.h"
#include "engine/data/host_options.h"
#include "engine/data/transform_kinds.h"
#include "kernels/image/colors.h"

namespace dpt {
namespace {

/// Returns element `at` of torch.linspace in float32. Like torch, counts from the nearer end.
double linspace(float start, float end, std::int64_t at, std::int64_t count) {
  const float step = (end - start) / static_cast<float>(count - 1);
  return at < count / 2 ? std::fma(step, static_cast<float>(at), start)
                        : std::fma(-step, static_cast<float>(count - 1 - at), end);
}

bool has_magnitude(TrivialOperation operation) {
  return operation != TrivialOperation::identity && operation != TrivialOperation::auto_contrast &&
         operation != TrivialOperation::equalize;
}

bool has_sign(TrivialOperation operation) {
  return has_magnitude(operation) && operation != TrivialOperation::posterize &&
         operation != TrivialOperation::solarize;
}

double atan_degrees(double slope) {
  return std::atan(slope) * (180.0 / std::numbers::pi);
}

}  // namespace

double trivial_magnitude(TrivialOperation operation, std::int64_t bin, std::int64_t bins) {
  assert(bins >= 2 && bin >= 0 && bin < bins);
  switch (operation) {
    case TrivialOperation::translate_x:
    case TrivialOperation::translate_y:
      return linspace(0.0F, 32.0F, bin, bins);
    case TrivialOperation::rotate:
      return linspace(0.0F, 135.0F, bin, bins);
    case TrivialOperation::posterize: {
      const auto bins_a_bit = static_cast<float>(static_cast<double>(bins - 1) / 6.0);
      return std::nearbyint(8.0F - static_cast<float>(bin) / bins_a_bit);
    }
    case TrivialOperation::solarize:
      return linspace(1.0F, 0.0F, bin, bins);
    case TrivialOperation::identity:
    case TrivialOperation::auto_contrast:
    case TrivialOperation::equalize:
      return 0;
    default:
      return linspace(0.0F, 0.99F, bin, bins);
  }
}

TrivialParams draw_trivial(std::int64_t bins, DrawStream& draws) {
  TrivialParams params;
  params.operation = static_cast<TrivialOperation>(draws.below(kTrivialOperations));
  if (!has_magnitude(params.operation)) return params;
  params.magnitude = trivial_magnitude(params.operation, draws.below(bins), bins);
  if (has_sign(params.operation) && draws.happens(0.5)) params.magnitude = -params.magnitude;
  return params;
}

void apply_trivial(const TrivialParams& params, Interpolation interpolation, FillColour fill,
                   Image& image) {
  const double magnitude = params.magnitude;
  const auto warp = [&](const AffineParams& affine, Point center) {
    replace_image(image, warped(image, affine_matrix(affine, center), image.height, image.width,
                                interpolation, fill));
  };
  const Point middle{static_cast<double>(image.width) * 0.5,
                     static_cast<double>(image.height) * 0.5};
  AffineParams affine;
  switch (params.operation) {
    case TrivialOperation::identity:
      return;
    case TrivialOperation::shear_x:
      affine.shear_x = atan_degrees(magnitude);
      return warp(affine, {0, 0});
    case TrivialOperation::shear_y:
      affine.shear_y = atan_degrees(magnitude);
      return warp(affine, {0, 0});
    case TrivialOperation::translate_x:
      affine.translate_x = static_cast<std::int64_t>(magnitude);
      return warp(affine, middle);
    case TrivialOperation::translate_y:
      affine.translate_y = static_cast<std::int64_t>(magnitude);
      return warp(affine, middle);
    case TrivialOperation::rotate:
      replace_image(image, rotated(image, magnitude, interpolation, false, nullptr, fill));
      return;
    case TrivialOperation::brightness:
      return adjust_brightness(image, 1.0 + magnitude);
    case TrivialOperation::color:
      return adjust_saturation(image, 1.0 + magnitude);
    case TrivialOperation::contrast:
      return adjust_contrast(image, 1.0 + magnitude);
    case TrivialOperation::sharpness:
      return adjust_sharpness(image, 1.0 + magnitude);
    case TrivialOperation::posterize:
      return posterize(image, static_cast<int>(magnitude));
    case TrivialOperation::solarize:
      return solarize(image, 255.0 * magnitude);
    case TrivialOperation::auto_contrast:
      return autocontrast(image);
    case TrivialOperation::equalize:
      return equalize(image);
  }
}

namespace {

struct TrivialAugmentWideOptions {
  std::int64_t num_magnitude_bins = 31;
  Interpolation interpolation = Interpolation::nearest;
  std::vector<double> fill = {0};
};

const ObjectTable& trivial_augment_wide_table() {
  static const ObjectTable table = object_table<TrivialAugmentWideOptions>(
      "TrivialAugmentWide",
      "Applies one of 14 operations, chosen at random, with a random strength: identity, shear and "
      "translation (along x or y), rotation, brightness, colour, contrast, sharpness, posterize, "
      "solarize, autocontrast, equalize.",
      {field("num_magnitude_bins", &TrivialAugmentWideOptions::num_magnitude_bins,
             "Number of different strengths.")
           .range(2, 1024),
       field("interpolation", &TrivialAugmentWideOptions::interpolation,
             "Interpolation between pixels: the nearest pixel, or bilinear."),
       field("fill", &TrivialAugmentWideOptions::fill,
             "Value of the pixels outside the image, from 0 to 255: one for all channels, or [red, "
             "green, blue].")
           .range(0, 255)
           .items(1, 3)
           .or_one()});
  return table;
}

class TrivialAugmentWide final : public HostTransform {
 public:
  explicit TrivialAugmentWide(const Variant& transform)
      : bins_(transform.as<TrivialAugmentWideOptions>().num_magnitude_bins),
        interpolation_(transform.as<TrivialAugmentWideOptions>().interpolation),
        fill_(transform, transform.as<TrivialAugmentWideOptions>().fill) {}
  void apply(Image& image, DrawStream& draws) const override {
    apply_trivial(draw_trivial(bins_, draws), interpolation_, fill_.of(image), image);
  }

 private:
  std::int64_t bins_;
  Interpolation interpolation_;
  Fill fill_;
};

std::unique_ptr<HostTransform> make_trivial_augment(const Variant& transform) {
  return std::make_unique<TrivialAugmentWide>(transform);
}

}  // namespace

TransformKind trivial_augment_wide_transform() {
  return {&trivial_augment_wide_table(), make_trivial_augment, std::nullopt, true};
}

}  // namespace dpt
