// ColorJitter and RandomGrayscale.
#include <utility>

#include "engine/data/host_choices.h"
#include "engine/data/host_options.h"
#include "engine/data/transform_kinds.h"
#include "kernels/base/error.h"
#include "kernels/image/colors.h"

namespace dpt {

JitterParams draw_jitter(const JitterRanges& ranges, DrawStream& draws) {
  JitterParams params;
  for (std::size_t left = params.order.size(); left > 1; --left) {
    const auto chosen = static_cast<std::size_t>(draws.below(static_cast<std::int64_t>(left)));
    std::swap(params.order[left - 1], params.order[chosen]);
  }
  const auto draw = [&](const std::optional<Interval>& range) {
    return range ? std::optional<double>(draw_uniform(*range, draws)) : std::nullopt;
  };
  params.brightness = draw(ranges.brightness);
  params.contrast = draw(ranges.contrast);
  params.saturation = draw(ranges.saturation);
  params.hue = draw(ranges.hue);
  return params;
}

void apply_jitter(const JitterParams& params, Image& image) {
  for (const int which : params.order) {
    if (which == 0 && params.brightness) adjust_brightness(image, *params.brightness);
    if (which == 1 && params.contrast) adjust_contrast(image, *params.contrast);
    if (which == 2 && params.saturation) adjust_saturation(image, *params.saturation);
    if (which == 3 && params.hue) adjust_hue(image, *params.hue);
  }
}

namespace {

struct ColorJitterOptions {
  std::vector<double> brightness = {0}, contrast = {0}, saturation = {0}, hue = {0};
};

struct RandomGrayscaleOptions {
  double p = 0.1;
};

const ObjectTable& color_jitter_table() {
  static const ObjectTable table = object_table<ColorJitterOptions>(
      "ColorJitter",
      "Changes brightness, contrast, saturation and hue by random amounts, in a random order.",
      {field("brightness", &ColorJitterOptions::brightness,
             "The factor is uniform in [minimum, maximum]; one number stands for [1 - brightness, "
             "1 + brightness], with a minimum of 0. 0: no change.")
           .range(0, 1000)
           .items(1, 2)
           .or_one(),
       field("contrast", &ColorJitterOptions::contrast, "Like brightness.")
           .range(0, 1000)
           .items(1, 2)
           .or_one(),
       field("saturation", &ColorJitterOptions::saturation, "Like brightness.")
           .range(0, 1000)
           .items(1, 2)
           .or_one(),
       field("hue", &ColorJitterOptions::hue,
             "Shift of the hue as a fraction of the colour circle, uniform in [minimum, maximum]; "
             "one number stands for [-hue, hue]. 0: no change.")
           .range(-0.5, 0.5)
           .items(1, 2)
           .or_one()});
  return table;
}

const ObjectTable& random_grayscale_table() {
  static const ObjectTable table = object_table<RandomGrayscaleOptions>(
      "RandomGrayscale", "Makes the image grey at random; the number of channels stays the same.",
      {field("p", &RandomGrayscaleOptions::p, "Probability of a grey image.").range(0, 1)});
  return table;
}

/// Converts [v] to 1-v..1+v, cut off at 0. Returns nothing for 1..1, which leaves images unchanged.
std::optional<Interval> factors(const Variant& transform, const char* field,
                                const std::vector<double>& numbers) {
  Interval range = range_of(transform, field, numbers);
  if (numbers.size() == 1) range = {std::max(1 - numbers[0], 0.0), 1 + numbers[0]};
  if (range.low == 1 && range.high == 1) return std::nullopt;
  return range;
}

class ColorJitter final : public HostTransform {
 public:
  explicit ColorJitter(const Variant& transform) {
    const auto& options = transform.as<ColorJitterOptions>();
    ranges_.brightness = factors(transform, "brightness", options.brightness);
    ranges_.contrast = factors(transform, "contrast", options.contrast);
    ranges_.saturation = factors(transform, "saturation", options.saturation);
    const Interval hue = range_of(transform, "hue", options.hue);
    if (hue.low != 0 || hue.high != 0) ranges_.hue = hue;
  }
  void apply(Image& image, DrawStream& draws) const override {
    apply_jitter(draw_jitter(ranges_, draws), image);
  }

 private:
  JitterRanges ranges_;
};

class RandomGrayscale final : public HostTransform {
 public:
  explicit RandomGrayscale(const Variant& transform)
      : p_(transform.as<RandomGrayscaleOptions>().p) {}
  void apply(Image& image, DrawStream& draws) const override {
    if (draws.happens(p_)) to_grayscale(image);
  }

 private:
  double p_;
};

template <class T>
std::unique_ptr<HostTransform> make_color(const Variant& transform) {
  return std::make_unique<T>(transform);
}

}  // namespace

TransformKind color_jitter_transform() {
  return {&color_jitter_table(), make_color<ColorJitter>, std::nullopt, true};
}

TransformKind random_grayscale_transform() {
  return {&random_grayscale_table(), make_color<RandomGrayscale>, std::nullopt, true};
}

}  // namespace dpt
