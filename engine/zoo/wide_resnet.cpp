// Wide residual networks for small images ("Wide residual networks", Zagoruyko and Komodakis 2016).
// Batch normalisation and ReLU come before each convolution. torchvision has none of these
// networks, so the names follow those of its ResNets.
#include "engine/zoo/classes.h"
#include "engine/zoo/kinds.h"
#include "engine/zoo/net_text.h"

namespace dpt {
namespace {

struct WideResnetOptions {
  std::int64_t classes = 0;
  std::int64_t depth = 28;
  std::int64_t width = 10;
  double dropout = 0;
  bool sync = false;
};

/// Returns a block. If the width changes, the shortcut is a convolution that reads the same input
/// as the first convolution.
std::string wide_block(const WideResnetOptions& o, std::int64_t width, std::int64_t stride,
                       bool projects) {
  zoo::Layers branch = {zoo::batch_norm("bn1", o.sync), zoo::layer("ReLU", "relu1"),
                        zoo::fan_out_conv("conv1", {width, 3, stride, 1, false}),
                        zoo::batch_norm("bn2", o.sync), zoo::layer("ReLU", "relu2")};
  if (o.dropout > 0) {
    branch.push_back(zoo::layer("Dropout", "dropout", fmt::format("p: {}", o.dropout)));
  }
  branch.push_back(zoo::fan_out_conv("conv2", {width, 3, 1, 1, false}));
  std::string parts = "layers: " + zoo::list_of(branch);
  if (projects) {
    const zoo::Conv shape{width, 1, stride, 0, false};
    const std::string projection =
        zoo::conv("downsample", shape, zoo::fan_out_init(shape) + ", from: relu1");
    parts += ", shortcut: " + zoo::list_of({projection});
  }
  return zoo::layer("Residual", "", parts);
}

std::string wide_resnet(const std::string&, const Variant& options) {
  const auto& o = options.as<WideResnetOptions>();
  zoo::Layers layers = {zoo::fan_out_conv("conv1", {16, 3, 1, 1, false})};
  for (int stage = 0; stage < 3; ++stage) {
    const std::int64_t width = (std::int64_t{16} << stage) * o.width;
    zoo::Layers blocks;
    for (std::int64_t i = 0; i < (o.depth - 4) / 6; ++i) {
      const bool changes_width = i == 0 && (stage > 0 || o.width > 1);
      blocks.push_back(wide_block(o, width, i == 0 && stage > 0 ? 2 : 1, changes_width));
    }
    layers.push_back(zoo::sequential(fmt::format("layer{}", stage + 1), blocks));
  }
  zoo::append(layers, {zoo::batch_norm("bn1", o.sync), zoo::layer("ReLU", "relu"),
                       zoo::layer("AdaptiveAvgPool2d", "avgpool"), zoo::layer("Flatten", "flatten"),
                       zoo::linear("fc", o.classes)});
  return zoo::list_of(layers);
}

std::string check_depth(const WideResnetOptions& o) {
  if (o.depth >= 10 && (o.depth - 4) % 6 == 0) return {};
  return fmt::format("expected a depth of 6n + 4 (10, 16, 22, 28, 40, ...), found {}", o.depth);
}

}  // namespace

std::vector<ZooNet> wide_resnet_family() {
  using O = WideResnetOptions;
  static const ObjectTable table = object_table<O>(
      "wide_resnet28_10", "Wide ResNet for images of about 32x32; with the defaults, WRN-28-10.",
      {zoo::classes_field<O>(),
       field("depth", &O::depth, "Layers with weights: 6n + 4, in three stages of n blocks.")
           .range(10, 1000),
       field("width", &O::width,
             "Factor by which the widths of the three stages, 16, 32 and 64, are multiplied.")
           .range(1, 256),
       field("dropout", &O::dropout, "Probability of dropout in each block; 0: no dropout layers.")
           .range(0, 1),
       zoo::sync_field<O>()},
      &check_depth);
  return {{&table, &wide_resnet}};
}

}  // namespace dpt
