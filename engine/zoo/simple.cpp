// Small networks that consist of convolutions and linear layers: logistic, mlp, lenet.
#include "engine/zoo/classes.h"
#include "engine/zoo/kinds.h"
#include "engine/zoo/net_text.h"

namespace dpt {
namespace {

struct LogisticOptions {
  std::int64_t classes = 0;
};
struct MlpOptions {
  std::int64_t classes = 0;
  std::vector<std::int64_t> hidden{128};
};
struct LenetOptions {
  std::int64_t classes = 0;
  std::vector<std::int64_t> channels{20, 50};
  std::vector<std::int64_t> kernel_sizes{3, 5};
  std::int64_t hidden = 128;
};

const ObjectTable& logistic_table() {
  static const ObjectTable table =
      object_table<LogisticOptions>("logistic", "Logistic regression: one linear layer, fc.",
                                    {zoo::classes_field<LogisticOptions>()});
  return table;
}

std::string logistic(const std::string&, const Variant& options) {
  const auto& o = options.as<LogisticOptions>();
  return zoo::list_of({zoo::layer("Flatten"), zoo::linear("fc", o.classes)});
}

const ObjectTable& mlp_table() {
  using O = MlpOptions;
  static const ObjectTable table = object_table<O>(
      "mlp", "Multilayer perceptron: linear layers fc1, fc2, ... with ReLU in between.",
      {zoo::classes_field<O>(),
       field("hidden", &O::hidden, "Widths of the hidden layers, in order.")
           .range(1, 1'000'000)
           .items(1, 100)});
  return table;
}

std::string mlp(const std::string&, const Variant& options) {
  const auto& o = options.as<MlpOptions>();
  zoo::Layers layers{zoo::layer("Flatten")};
  int number = 0;
  for (const std::int64_t width : o.hidden) {
    layers.push_back(zoo::linear(fmt::format("fc{}", ++number), width));
    layers.push_back(zoo::layer("ReLU"));
  }
  layers.push_back(zoo::linear(fmt::format("fc{}", ++number), o.classes));
  return zoo::list_of(layers);
}

const ObjectTable& lenet_table() {
  using O = LenetOptions;
  static const ObjectTable table = object_table<O>(
      "lenet",
      "A small LeNet: two convolutions, each with ReLU and average pooling, and two linear layers "
      "(conv1, conv2, fc1, fc2).",
      {zoo::classes_field<O>(),
       field("channels", &O::channels, "Output channels of the two convolutions.")
           .range(1, 65536)
           .items(2, 2),
       field("kernel_sizes", &O::kernel_sizes, "Kernel sizes of the two convolutions.")
           .range(1, 1024)
           .items(2, 2),
       field("hidden", &O::hidden, "Outputs of fc1.").range(1, 1'000'000)});
  return table;
}

std::string lenet(const std::string&, const Variant& options) {
  const auto& o = options.as<LenetOptions>();
  zoo::Layers layers;
  for (std::size_t i = 0; i < 2; ++i) {
    layers.push_back(zoo::layer(
        "Conv2d", fmt::format("conv{}", i + 1),
        fmt::format("out_channels: {}, kernel_size: {}", o.channels[i], o.kernel_sizes[i])));
    layers.push_back(zoo::layer("ReLU"));
    layers.push_back(zoo::layer("AvgPool2d", "", "kernel_size: 2, stride: 2"));
  }
  zoo::append(layers, {zoo::layer("Flatten"), zoo::linear("fc1", o.hidden), zoo::layer("ReLU"),
                       zoo::linear("fc2", o.classes)});
  return zoo::list_of(layers);
}

}  // namespace

std::vector<ZooNet> simple_family() {
  return {{&logistic_table(), &logistic}, {&mlp_table(), &mlp}, {&lenet_table(), &lenet}};
}

}  // namespace dpt
