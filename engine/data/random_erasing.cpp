// RandomErasing: the host draws rectangles (input_draws.h), and the input kernel fills them.
#include <cmath>

#include "engine/data/host_choices.h"
#include "engine/data/host_options.h"
#include "engine/data/transform_kinds.h"

namespace dpt {
namespace {

struct ErasingOptions {
  double p = 0.5;
  std::vector<double> scale{0.02, 0.33}, ratio{0.3, 3.3}, value{0.0};
};

std::string problem_of_erasing(const ErasingOptions& options) {
  if (!(options.scale[0] <= options.scale[1])) {
    return fmt::format("scale: expected [minimum, maximum], found {}", numbers_text(options.scale));
  }
  return problem_of_positive_range("ratio", options.ratio);
}

void describe_erasing(const Variant& transform, InputDesc& desc) {
  std::vector<double> values = transform.as<ErasingOptions>().value;
  if (values.size() == 1) values.resize(static_cast<std::size_t>(desc.raw.c), values[0]);
  desc.erase = true;
  desc.erase_value = channel_values(transform, "value", values, desc.raw.c);
}

InputBox draw_erased_box(const Variant& transform, Size2 size, DrawStream& draws) {
  const auto& options = transform.as<ErasingOptions>();
  if (!draws.happens(options.p)) return {};
  const ErasingRanges ranges{{options.scale[0], options.scale[1]},
                             {options.ratio[0], options.ratio[1]}};
  const std::optional<PixelBox> box = draw_erasing(ranges, size, draws);
  if (!box) return {};
  return {static_cast<std::int32_t>(box->top), static_cast<std::int32_t>(box->left),
          static_cast<std::int32_t>(box->height), static_cast<std::int32_t>(box->width)};
}

}  // namespace

std::optional<PixelBox> draw_erasing(const ErasingRanges& ranges, Size2 image, DrawStream& draws) {
  const auto area = static_cast<double>(image.h * image.w);
  const Interval log_ratio{std::log(ranges.ratio.low), std::log(ranges.ratio.high)};
  for (int tries = 0; tries < 10; ++tries) {
    const double erased = area * draw_uniform(ranges.scale, draws);
    const double ratio = std::exp(draw_uniform(log_ratio, draws));
    const auto height = static_cast<std::int64_t>(std::nearbyint(std::sqrt(erased * ratio)));
    const auto width = static_cast<std::int64_t>(std::nearbyint(std::sqrt(erased / ratio)));
    if (height >= image.h || width >= image.w) continue;
    const std::int64_t top = draws.below(image.h - height + 1);
    const std::int64_t left = draws.below(image.w - width + 1);
    return PixelBox{top, left, height, width};
  }
  return std::nullopt;
}

TransformKind random_erasing_transform() {
  static const ObjectTable table = object_table<ErasingOptions>(
      "RandomErasing",
      "Fills a random rectangle of the normalised image. Must be last, after Normalize if there is "
      "one; only for training.",
      {field("p", &ErasingOptions::p, "Probability that a rectangle is filled.").range(0, 1),
       field("scale", &ErasingOptions::scale,
             "Minimum and maximum area of the rectangle, as fractions of the image's area.")
           .items(2, 2)
           .range(0, 1),
       field("ratio", &ErasingOptions::ratio,
             "Minimum and maximum ratio of the rectangle's height to its width.")
           .items(2, 2)
           .range(0, 1000),
       field(
           "value", &ErasingOptions::value,
           "Fill value: a number, or one for each channel, in units of the normalised image: 0 is "
           "the mean of Normalize. Random numbers (torchvision's \"random\") are not supported.")
           .items(1, 65536)
           .or_one()},
      &problem_of_erasing);
  TransformKind kind{&table};
  kind.device = DevicePart{describe_erasing, InputPosition::erase, false, draw_erased_box};
  kind.is_random = kind.trains_only = true;
  return kind;
}

}  // namespace dpt
