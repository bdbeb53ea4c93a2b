#include "engine/data/normalize.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/ranges.h>

#include "engine/data/host_options.h"
#include "engine/data/transform_kinds.h"

namespace dpt {
namespace {

struct NormalizeOptions {
  std::vector<double> mean, std;
};

void describe_normalize(const Variant& transform, InputDesc& desc) {
  const auto& options = transform.as<NormalizeOptions>();
  desc.mean = channel_values(transform, "mean", options.mean, desc.raw.c);
  desc.stddev = channel_values(transform, "std", options.std, desc.raw.c, true);
}

/// Returns "mean [0.5], std [0.25]" for each Normalize in a list; "nothing" if there is none.
std::string normalisation_text(const std::vector<Variant>& transforms) {
  std::vector<std::string> texts;
  for (const Variant& transform : transforms) {
    if (transform.type != "Normalize") continue;
    const auto& options = transform.as<NormalizeOptions>();
    texts.push_back(fmt::format("mean [{}], std [{}]", fmt::join(options.mean, ", "),
                                fmt::join(options.std, ", ")));
  }
  return texts.empty() ? "nothing" : fmt::format("{}", fmt::join(texts, "; "));
}

}  // namespace

TransformKind normalize_transform() {
  static const ObjectTable table = object_table<NormalizeOptions>(
      "Normalize",
      "Scales the values to 0..1, then subtracts the mean and divides by the standard deviation. "
      "Must be last; only RandomErasing may follow.",
      {field("mean", &NormalizeOptions::mean, "Mean of each channel.").required(),
       field("std", &NormalizeOptions::std, "Standard deviation of each channel.").required()});
  return {&table, nullptr, DevicePart{describe_normalize, InputPosition::normalise}};
}

std::string large_mean(const DataSpec& data) {
  const TransformsSpec& transforms = data.transforms;
  for (const auto& [name, list] : {std::pair("data.transforms.train", &transforms.train),
                                   std::pair("data.transforms.eval", &transforms.eval)}) {
    for (const Variant& transform : *list) {
      if (transform.type != "Normalize") continue;
      const std::vector<double>& means = transform.as<NormalizeOptions>().mean;
      const auto large =
          std::find_if(means.begin(), means.end(), [](double mean) { return std::abs(mean) > 1; });
      if (large == means.end()) continue;
      return fmt::format(
          "{} the mean {:g}, but its input ranges from 0 to 1: divide mean and std by 255",
          data.normalize.has_numbers() ? "data.normalize has"
                                       : fmt::format("{}: Normalize has", name),
          *large);
    }
  }
  return {};
}

std::string different_normalisation(const TransformsSpec& transforms) {
  const std::string train = normalisation_text(transforms.train);
  const std::string eval = normalisation_text(transforms.eval);
  if (train == eval) return {};
  return fmt::format(
      "data.transforms: train has Normalize with {}, eval with {}: evaluation inputs differ from "
      "the training inputs",
      train, eval);
}

}  // namespace dpt
