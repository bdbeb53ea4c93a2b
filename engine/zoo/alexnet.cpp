// AlexNet as in torchvision ("One weird trick for parallelizing convolutional neural networks",
// Krizhevsky 2014), for images of at least 63x63.
#include "engine/zoo/classes.h"
#include "engine/zoo/kinds.h"
#include "engine/zoo/net_text.h"

namespace dpt {
namespace {

struct AlexnetOptions {
  std::int64_t classes = 0;
  double dropout = 0.5;
};

const ObjectTable& alexnet_table() {
  using O = AlexnetOptions;
  static const ObjectTable table = object_table<O>(
      "alexnet", "AlexNet, like torchvision's alexnet; for images of 63x63 or more.",
      {zoo::classes_field<O>(),
       field("dropout", &O::dropout, "Probability of the two dropout layers.").range(0, 1)});
  return table;
}

std::string alexnet(const std::string&, const Variant& options) {
  const auto& o = options.as<AlexnetOptions>();
  const std::string relu = zoo::layer("ReLU");
  const std::string pool = zoo::layer("MaxPool2d", "", "kernel_size: 3, stride: 2");
  const std::string dropout = zoo::layer("Dropout", "", fmt::format("p: {}", o.dropout));
  const zoo::Layers features = {zoo::conv("", {64, 11, 4, 2}),
                                relu,
                                pool,
                                zoo::conv("", {192, 5, 1, 2}),
                                relu,
                                pool,
                                zoo::conv("", {384}),
                                relu,
                                zoo::conv("", {256}),
                                relu,
                                zoo::conv("", {256}),
                                relu,
                                pool};
  const zoo::Layers classifier = {
      dropout, zoo::linear("", 4096),     relu, dropout, zoo::linear("", 4096),
      relu,    zoo::linear("", o.classes)};
  return zoo::list_of({zoo::sequential("features", features),
                       zoo::layer("AdaptiveAvgPool2d", "avgpool", "output_size: 6"),
                       zoo::layer("Flatten", "flatten"),
                       zoo::sequential("classifier", classifier)});
}

}  // namespace

std::vector<ZooNet> alexnet_family() {
  return {{&alexnet_table(), &alexnet}};
}

}  // namespace dpt
