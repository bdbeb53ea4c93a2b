// ConvNeXt as in torchvision ("A ConvNet for the 2020s", Liu et al. 2022).
#include <array>

#include "engine/zoo/classes.h"
#include "engine/zoo/kinds.h"
#include "engine/zoo/net_text.h"

namespace dpt {
namespace {

struct ConvnextOptions {
  std::int64_t classes = 0;
  double stochastic_depth = 0.1;
};

const ObjectTable& convnext_table() {
  using O = ConvnextOptions;
  static const ObjectTable table = object_table<O>(
      "convnext_tiny",
      "ConvNeXt-Tiny, like torchvision's convnext_tiny; for images of 32x32 or more.",
      {zoo::classes_field<O>(),
       field("stochastic_depth", &O::stochastic_depth,
             "Probability of the last block's StochasticDepth; the first block's is 0, and those "
             "between grow evenly.")
           .range(0, 1)});
  return table;
}

// torchvision truncates this normal distribution, but only at a hundred standard deviations.
const char* const kConvnextInit =
    ", weight_init: normal, weight_init_std: 0.02, bias_init: constant, bias_init_value: 0";

std::string layer_norm(const char* name = "") {
  return zoo::layer("LayerNorm2d", name, "eps: 0.000001");
}

/// Returns a block. Its layers' numbers skip 1 and 6. torchvision permutes dimensions there, which
/// is not needed here. (Numbers are quoted, because YAML would not read them as names.)
std::string convnext_block(std::int64_t width, double drop) {
  const auto linear = [](const char* name, std::int64_t features) {
    return zoo::linear(name, features, std::string(", per_pixel: true") + kConvnextInit);
  };
  const zoo::Layers branch = {
      zoo::conv("'0'", {width, 7, 1, 3}, fmt::format(", groups: {}", width) + kConvnextInit),
      layer_norm("'2'"), linear("'3'", 4 * width), zoo::layer("GELU", "'4'"), linear("'5'", width)};
  const zoo::Layers layers = {
      zoo::sequential("block", branch), zoo::layer("LayerScale", "layer_scale"),
      zoo::layer("StochasticDepth", "stochastic_depth", fmt::format("p: {}", drop))};
  return zoo::layer("Residual", "", "layers: " + zoo::list_of(layers));
}

std::string convnext(const std::string&, const Variant& options) {
  const auto& o = options.as<ConvnextOptions>();
  static constexpr std::array kBlocks = {3, 3, 9, 3};
  static constexpr int kLast = 3 + 3 + 9 + 3 - 1;
  std::int64_t width = 96;
  zoo::Layers features;
  int number = 0;
  for (std::size_t stage = 0; stage < kBlocks.size(); ++stage) {
    if (stage == 0) {
      features.push_back(
          zoo::sequential("", {zoo::conv("", {width, 4, 4, 0}, kConvnextInit), layer_norm()}));
    } else {
      width *= 2;
      features.push_back(
          zoo::sequential("", {layer_norm(), zoo::conv("", {width, 2, 2, 0}, kConvnextInit)}));
    }
    zoo::Layers blocks;
    for (int i = 0; i < kBlocks[stage]; ++i) {
      blocks.push_back(convnext_block(width, o.stochastic_depth * number++ / kLast));
    }
    features.push_back(zoo::sequential("", blocks));
  }
  const zoo::Layers classifier = {layer_norm(), zoo::layer("Flatten"),
                                  zoo::linear("", o.classes, kConvnextInit)};
  return zoo::list_of({zoo::sequential("features", features),
                       zoo::layer("AdaptiveAvgPool2d", "avgpool"),
                       zoo::sequential("classifier", classifier)});
}

}  // namespace

std::vector<ZooNet> convnext_family() {
  return {{&convnext_table(), &convnext}};
}

}  // namespace dpt
