// MobileNets as in torchvision: V2 ("MobileNetV2: inverted residuals and linear bottlenecks",
// Sandler et al. 2018) and the small V3 ("Searching for MobileNetV3", Howard et al. 2019).
#include <algorithm>

#include "engine/zoo/classes.h"
#include "engine/zoo/kinds.h"
#include "engine/zoo/net_text.h"

namespace dpt {
namespace {

struct MobilenetOptions {
  std::int64_t classes = 0;
  double width = 1;
  double dropout = 0.2;
  bool sync = false;
};

ObjectTable mobilenet_table(const char* name, const char* doc) {
  using O = MobilenetOptions;
  return object_table<O>(
      name, doc,
      {zoo::classes_field<O>(),
       field(
           "width", &O::width,
           "Factor by which all widths are multiplied; the results are rounded to multiples of 8.")
           .range(0.1, 16),
       field("dropout", &O::dropout, "Dropout probability.").range(0, 1), zoo::sync_field<O>()});
}

/// Returns the multiple of 8 closest to `channels` that is not below 9/10 of it.
std::int64_t rounded_channels(double channels) {
  const auto nearest = std::max<std::int64_t>(8, static_cast<std::int64_t>(channels + 4) / 8 * 8);
  return static_cast<double>(nearest) < 0.9 * channels ? nearest + 8 : nearest;
}

std::string normal_linear(std::int64_t features) {
  return zoo::linear(
      "", features,
      ", weight_init: normal, weight_init_std: 0.01, bias_init: constant, bias_init_value: 0");
}

/// A convolution without bias, followed by norm and activation. It is padded so that only its
/// stride changes the size.
struct Unit {
  std::int64_t channels = 0, kernel = 1, stride = 1;
  bool depthwise = false;
  std::string activation{};  ///< empty = none
};
zoo::Layers unit_layers(const Unit& u, bool sync, const std::string& norm_options) {
  const zoo::Conv shape{u.channels, u.kernel, u.stride, (u.kernel - 1) / 2, false};
  const std::string groups = u.depthwise ? fmt::format(", groups: {}", u.channels) : "";
  zoo::Layers layers = {zoo::conv("", shape, zoo::fan_out_init(shape) + groups),
                        zoo::batch_norm("", sync, norm_options)};
  if (!u.activation.empty()) layers.push_back(zoo::layer(u.activation));
  return layers;
}

/// Returns a Sequential named `name` with the layers. If input and output have the same shape
/// (`is_residual`), it is the branch of a residual block.
std::string block(const char* name, const zoo::Layers& layers, bool is_residual) {
  const std::string branch = zoo::sequential(name, layers);
  return is_residual ? zoo::layer("Residual", "", "layers: " + zoo::list_of({branch}))
                     : zoo::sequential("", {branch});
}

zoo::Layers head(const zoo::Layers& classifier) {
  return {zoo::layer("AdaptiveAvgPool2d", "avgpool"), zoo::layer("Flatten", "flatten"),
          zoo::sequential("classifier", classifier)};
}

std::string mobilenet_v2(const std::string&, const Variant& options) {
  const auto& o = options.as<MobilenetOptions>();
  const auto unit = [&](const Unit& u) { return unit_layers(u, o.sync, ""); };
  /// Blocks with the same number of channels. Inside, they widen the channels by the factor
  /// `expansion`. `stride` is the stride of the first block.
  struct Stage {
    std::int64_t expansion, channels;
    int blocks;
    std::int64_t stride;
  };
  static constexpr Stage kStages[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                                      {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
  std::int64_t channels = rounded_channels(32 * o.width);
  zoo::Layers features = {zoo::sequential("", unit({channels, 3, 2, false, "ReLU6"}))};
  for (const Stage& stage : kStages) {
    const std::int64_t out = rounded_channels(static_cast<double>(stage.channels) * o.width);
    for (int i = 0; i < stage.blocks; ++i) {
      const std::int64_t stride = i == 0 ? stage.stride : 1, inside = channels * stage.expansion;
      zoo::Layers layers;
      if (stage.expansion > 1) {
        layers.push_back(zoo::sequential("", unit({inside, 1, 1, false, "ReLU6"})));
      }
      layers.push_back(zoo::sequential("", unit({inside, 3, stride, true, "ReLU6"})));
      zoo::append(layers, unit({out}));
      features.push_back(block("conv", layers, stride == 1 && channels == out));
      channels = out;
    }
  }
  const std::int64_t last = rounded_channels(1280 * std::max(1.0, o.width));
  features.push_back(zoo::sequential("", unit({last, 1, 1, false, "ReLU6"})));
  zoo::Layers layers = {zoo::sequential("features", features)};
  zoo::append(layers, head({zoo::layer("Dropout", "", fmt::format("p: {}", o.dropout)),
                            normal_linear(o.classes)}));
  return zoo::list_of(layers);
}

/// Returns layers that multiply each channel by a gate in [0, 1]. The gates are functions of the
/// means of all channels. `input` is the index of the preceding block.
std::string squeeze_and_excitation(std::int64_t channels, std::size_t input) {
  const auto conv = [](const char* name, std::int64_t out) {
    const zoo::Conv shape{out, 1, 1, 0};
    return zoo::conv(name, shape,
                     zoo::fan_out_init(shape) + ", bias_init: constant, bias_init_value: 0");
  };
  const std::int64_t quarter = channels / 4;
  const std::int64_t narrow = rounded_channels(static_cast<double>(quarter));
  return zoo::sequential(
      "", {zoo::layer("AdaptiveAvgPool2d", "avgpool"), conv("fc1", narrow),
           zoo::layer("ReLU", "activation"), conv("fc2", channels),
           zoo::layer("Hardsigmoid", "scale_activation"),
           zoo::layer("Multiply", "scaled", fmt::format("from: [scale_activation, '{}']", input))});
}

std::string mobilenet_v3_small(const std::string&, const Variant& options) {
  const auto& o = options.as<MobilenetOptions>();
  const auto unit = [&](const Unit& u) {
    return zoo::sequential("", unit_layers(u, o.sync, "eps: 0.001, momentum: 0.01"));
  };
  const auto width = [&](std::int64_t channels) {
    return rounded_channels(static_cast<double>(channels) * o.width);
  };
  struct Block {
    std::int64_t kernel, inside, channels;
    bool gated, hardswish;
    std::int64_t stride;
  };
  static constexpr Block kBlocks[] = {
      {3, 16, 16, true, false, 2}, {3, 72, 24, false, false, 2}, {3, 88, 24, false, false, 1},
      {5, 96, 40, true, true, 2},  {5, 240, 40, true, true, 1},  {5, 240, 40, true, true, 1},
      {5, 120, 48, true, true, 1}, {5, 144, 48, true, true, 1},  {5, 288, 96, true, true, 2},
      {5, 576, 96, true, true, 1}, {5, 576, 96, true, true, 1}};
  std::int64_t channels = width(16);
  zoo::Layers features = {unit({channels, 3, 2, false, "Hardswish"})};
  for (const Block& b : kBlocks) {
    const std::int64_t inside = width(b.inside), out = width(b.channels);
    const std::string activation = b.hardswish ? "Hardswish" : "ReLU";
    zoo::Layers layers;
    if (inside != channels) layers.push_back(unit({inside, 1, 1, false, activation}));
    layers.push_back(unit({inside, b.kernel, b.stride, true, activation}));
    if (b.gated) layers.push_back(squeeze_and_excitation(inside, layers.size() - 1));
    layers.push_back(unit({out, 1, 1, false, ""}));
    features.push_back(block("block", layers, b.stride == 1 && channels == out));
    channels = out;
  }
  features.push_back(unit({6 * channels, 1, 1, false, "Hardswish"}));
  zoo::Layers layers = {zoo::sequential("features", features)};
  zoo::append(layers, head({normal_linear(width(1024)), zoo::layer("Hardswish"),
                            zoo::layer("Dropout", "", fmt::format("p: {}", o.dropout)),
                            normal_linear(o.classes)}));
  return zoo::list_of(layers);
}

}  // namespace

std::vector<ZooNet> mobilenet_family() {
  static const ObjectTable v2 =
      mobilenet_table("mobilenet_v2", "MobileNetV2, like torchvision's mobilenet_v2.");
  static const ObjectTable v3 = mobilenet_table(
      "mobilenet_v3_small", "MobileNetV3-Small, like torchvision's mobilenet_v3_small.");
  return {{&v2, &mobilenet_v2}, {&v3, &mobilenet_v3_small}};
}

}  // namespace dpt
