// DenseNet-121 as in torchvision ("Densely connected convolutional networks", Huang et al. 2016). A
// layer reads the concatenation of all earlier outputs. This is the input of the layer before it,
// concatenated with that layer's output, so each Concat needs only two inputs.
#include "engine/zoo/classes.h"
#include "engine/zoo/kinds.h"
#include "engine/zoo/net_text.h"

namespace dpt {
namespace {

struct DensenetOptions {
  std::int64_t classes = 0;
  std::int64_t growth_rate = 32;
  double dropout = 0;
  bool sync = false;
};

const ObjectTable& densenet_table() {
  using O = DensenetOptions;
  static const ObjectTable table = object_table<O>(
      "densenet121", "DenseNet-121, like torchvision's densenet121; for images of 29x29 or more.",
      {zoo::classes_field<O>(),
       field("growth_rate", &O::growth_rate,
             "Channels that each layer of a block adds; the network begins with twice as many.")
           .range(1, 1024),
       field("dropout", &O::dropout,
             "Probability of dropout at the end of each layer of a block; 0: no dropout layers.")
           .range(0, 1),
       zoo::sync_field<O>()});
  return table;
}

std::string dense_conv(const char* name, const zoo::Conv& shape) {
  return zoo::conv(name, shape, ", weight_init: kaiming_normal");
}

std::string dense_layer(const DensenetOptions& o, int number) {
  zoo::Layers layers = {zoo::batch_norm("norm1", o.sync),
                        zoo::layer("ReLU", "relu1"),
                        dense_conv("conv1", {4 * o.growth_rate, 1, 1, 0, false}),
                        zoo::batch_norm("norm2", o.sync),
                        zoo::layer("ReLU", "relu2"),
                        dense_conv("conv2", {o.growth_rate, 3, 1, 1, false})};
  if (o.dropout > 0) {
    layers.push_back(zoo::layer("Dropout", "dropout", fmt::format("p: {}", o.dropout)));
  }
  return zoo::sequential(fmt::format("denselayer{}", number), layers);
}

/// Returns a dense block that reads `input`, the name of an earlier layer or block.
std::string dense_block(const DensenetOptions& o, int number, int count, std::string input) {
  zoo::Layers layers;
  for (int i = 1; i <= count; ++i) {
    layers.push_back(dense_layer(o, i));
    const std::string name = fmt::format("concat{}", i);
    layers.push_back(zoo::layer("Concat", name, fmt::format("from: [{}, denselayer{}]", input, i)));
    input = name;
  }
  return zoo::sequential(fmt::format("denseblock{}", number), layers);
}

std::string densenet(const std::string&, const Variant& options) {
  const auto& o = options.as<DensenetOptions>();
  std::int64_t channels = 2 * o.growth_rate;
  zoo::Layers features = {
      dense_conv("conv0", {channels, 7, 2, 3, false}), zoo::batch_norm("norm0", o.sync),
      zoo::layer("ReLU", "relu0"),
      zoo::layer("MaxPool2d", "pool0", "kernel_size: 3, stride: 2, padding: 1")};
  std::string input = "pool0";
  int number = 0;
  for (const int count : {6, 12, 24, 16}) {
    if (++number > 1) {
      channels /= 2;
      input = fmt::format("transition{}", number - 1);
      features.push_back(
          zoo::sequential(input, {zoo::batch_norm("norm", o.sync), zoo::layer("ReLU", "relu"),
                                  dense_conv("conv", {channels, 1, 1, 0, false}),
                                  zoo::layer("AvgPool2d", "pool", "kernel_size: 2, stride: 2")}));
    }
    features.push_back(dense_block(o, number, count, input));
    channels += count * o.growth_rate;
  }
  features.push_back(zoo::batch_norm("norm5", o.sync));
  return zoo::list_of(
      {zoo::sequential("features", features), zoo::layer("ReLU", "relu"),
       zoo::layer("AdaptiveAvgPool2d", "avgpool"), zoo::layer("Flatten", "flatten"),
       zoo::linear("classifier", o.classes, ", bias_init: constant, bias_init_value: 0")});
}

}  // namespace

std::vector<ZooNet> densenet_family() {
  return {{&densenet_table(), &densenet}};
}

}  // namespace dpt
