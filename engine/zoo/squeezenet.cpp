// SqueezeNet 1.1 as in torchvision ("SqueezeNet: AlexNet-level accuracy with 50x fewer parameters",
// Iandola et al. 2016).
#include "engine/zoo/classes.h"
#include "engine/zoo/kinds.h"
#include "engine/zoo/net_text.h"

namespace dpt {
namespace {

struct SqueezenetOptions {
  std::int64_t classes = 0;
  double dropout = 0.5;
};

const ObjectTable& squeezenet_table() {
  using O = SqueezenetOptions;
  static const ObjectTable table = object_table<O>(
      "squeezenet1_1",
      "SqueezeNet 1.1, like torchvision's squeezenet1_1; for images of 17x17 or more.",
      {zoo::classes_field<O>(), field("dropout", &O::dropout, "Dropout probability.").range(0, 1)});
  return table;
}

const char* const kFireInit =
    ", weight_init: kaiming_uniform, bias_init: constant, bias_init_value: 0";

/// Returns a fire module: a convolution that narrows the channels, and two parallel convolutions
/// that read its result.
std::string fire(std::int64_t squeeze, std::int64_t expand) {
  const auto relu = [](const char* name) { return zoo::layer("ReLU", name); };
  return zoo::sequential(
      "", {zoo::conv("squeeze", {squeeze, 1, 1, 0}, kFireInit), relu("squeeze_activation"),
           zoo::conv("expand1x1", {expand, 1, 1, 0}, kFireInit), relu("expand1x1_activation"),
           zoo::conv("expand3x3", {expand, 3, 1, 1},
                     std::string(kFireInit) + ", from: squeeze_activation"),
           relu("expand3x3_activation"),
           zoo::layer("Concat", "concat", "from: [expand1x1_activation, expand3x3_activation]")});
}

std::string squeezenet(const std::string&, const Variant& options) {
  const auto& o = options.as<SqueezenetOptions>();
  const std::string pool =
      zoo::layer("MaxPool2d", "", "kernel_size: 3, stride: 2, ceil_mode: true");
  const zoo::Layers features = {zoo::conv("", {64, 3, 2, 0}, kFireInit),
                                zoo::layer("ReLU"),
                                pool,
                                fire(16, 64),
                                fire(16, 64),
                                pool,
                                fire(32, 128),
                                fire(32, 128),
                                pool,
                                fire(48, 192),
                                fire(48, 192),
                                fire(64, 256),
                                fire(64, 256)};
  const std::string last = zoo::conv(
      "", {o.classes, 1, 1, 0},
      ", weight_init: normal, weight_init_std: 0.01, bias_init: constant, bias_init_value: 0");
  return zoo::list_of(
      {zoo::sequential("features", features),
       zoo::sequential("classifier", {zoo::layer("Dropout", "", fmt::format("p: {}", o.dropout)),
                                      last, zoo::layer("ReLU"), zoo::layer("AdaptiveAvgPool2d")}),
       zoo::layer("Flatten", "flatten")});
}

}  // namespace

std::vector<ZooNet> squeezenet_family() {
  return {{&squeezenet_table(), &squeezenet}};
}

}  // namespace dpt
