// RandomErasing: its options. Rectangles are drawn on the host (input_draws.h), and filled by the
// input kernel.
#include "engine/data/host_options.h"
#include "engine/data/transform_kinds.h"
#include "engine/data/transform_tables.h"

namespace dpt {
namespace {

std::string problem_of_erasing(const ErasingOptions& options) {
  if (!(options.scale[0] <= options.scale[1])) {
    return fmt::format("scale: expected [least, most], found {}", numbers_text(options.scale));
  }
  if (!(0 < options.ratio[0] && options.ratio[0] <= options.ratio[1])) {
    return fmt::format("ratio: expected [least, most] above 0, found {}",
                       numbers_text(options.ratio));
  }
  return {};
}

}  // namespace

TransformKind random_erasing_transform() {
  static const ObjectTable table = object_table<ErasingOptions>(
      "RandomErasing",
      "Fills a random rectangle of the normalised image. Must be last, after Normalize if there is "
      "one; only for training.",
      {field("p", &ErasingOptions::p, "Probability that a rectangle is filled.").range(0, 1),
       field("scale", &ErasingOptions::scale,
             "Least and most of the image's area that the rectangle has.")
           .items(2, 2)
           .range(0, 1),
       field("ratio", &ErasingOptions::ratio,
             "Least and most ratio of the rectangle's height to its width.")
           .items(2, 2)
           .range(0, 1000),
       field("value", &ErasingOptions::value,
             "What it is filled with: a number, or one for each channel, in units of the "
             "normalised image, so that 0 is the mean of Normalize. Random numbers (torchvision's "
             "\"random\") are not supported.")
           .items(1, 65536)
           .or_one()},
      &problem_of_erasing);
  return {&table, nullptr};
}

}  // namespace dpt
