// VGG as in torchvision ("Very deep convolutional networks for large-scale image recognition",
// Simonyan and Zisserman 2014): configurations A (vgg11) and D (vgg16), with and without batch
// normalisation. For images of at least 32x32.
#include "engine/zoo/classes.h"
#include "engine/zoo/kinds.h"
#include "engine/zoo/net_text.h"

namespace dpt {
namespace {

struct VggOptions {
  std::int64_t classes = 0;
  double dropout = 0.5;
  std::int64_t hidden = 4096;
  bool sync = false;
};

bool has_norms(const std::string& name) {
  return name.ends_with("_bn");
}

ObjectTable vgg_table(const char* name, const char* doc) {
  using O = VggOptions;
  ObjectTable table = object_table<O>(
      name, doc,
      {zoo::classes_field<O>(),
       field("dropout", &O::dropout, "Probability of the two dropout layers.").range(0, 1),
       field("hidden", &O::hidden, "Outputs of the first two linear layers.").range(1, 1'000'000)});
  if (has_norms(name)) table.fields.push_back(zoo::sync_field<O>());
  return table;
}

/// Returns the number of convolutions in each of the five stages. Each stage ends with max-pooling.
std::vector<int> stages_of(const std::string& name) {
  return name.starts_with("vgg11") ? std::vector<int>{1, 1, 2, 2, 2}
                                   : std::vector<int>{2, 2, 3, 3, 3};
}

std::string vgg(const std::string& name, const Variant& options) {
  const auto& o = options.as<VggOptions>();
  const std::string relu = zoo::layer("ReLU");
  const std::string dropout = zoo::layer("Dropout", "", fmt::format("p: {}", o.dropout));
  zoo::Layers features;
  std::int64_t channels = 64;
  for (const int convs : stages_of(name)) {
    for (int i = 0; i < convs; ++i) {
      const zoo::Conv conv{channels};
      features.push_back(zoo::conv(
          "", conv, zoo::fan_out_init(conv) + ", bias_init: constant, bias_init_value: 0"));
      if (has_norms(name)) features.push_back(zoo::batch_norm("", o.sync));
      features.push_back(relu);
    }
    features.push_back(zoo::layer("MaxPool2d", "", "kernel_size: 2, stride: 2"));
    channels = std::min<std::int64_t>(2 * channels, 512);
  }
  const std::string init =
      ", weight_init: normal, weight_init_std: 0.01, bias_init: constant, bias_init_value: 0";
  const zoo::Layers classifier = {zoo::linear("", o.hidden, init), relu, dropout,
                                  zoo::linear("", o.hidden, init), relu, dropout,
                                  zoo::linear("", o.classes, init)};
  return zoo::list_of({zoo::sequential("features", features),
                       zoo::layer("AdaptiveAvgPool2d", "avgpool", "output_size: 7"),
                       zoo::layer("Flatten", "flatten"),
                       zoo::sequential("classifier", classifier)});
}

}  // namespace

std::vector<ZooNet> vgg_family() {
  static const ObjectTable vgg11 = vgg_table("vgg11", "VGG-11, like torchvision's vgg11.");
  static const ObjectTable vgg11_bn =
      vgg_table("vgg11_bn", "VGG-11 with batch normalisation, like torchvision's vgg11_bn.");
  static const ObjectTable vgg16 = vgg_table("vgg16", "VGG-16, like torchvision's vgg16.");
  static const ObjectTable vgg16_bn =
      vgg_table("vgg16_bn", "VGG-16 with batch normalisation, like torchvision's vgg16_bn.");
  return {{&vgg11, &vgg}, {&vgg11_bn, &vgg}, {&vgg16, &vgg}, {&vgg16_bn, &vgg}};
}

}  // namespace dpt
