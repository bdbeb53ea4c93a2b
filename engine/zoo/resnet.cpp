// Residual networks ("Deep residual learning for image recognition", He et al. 2015). Those for
// large images are as in torchvision. Those for CIFAR are the paper's, with the same layer names.
#include "engine/zoo/classes.h"
#include "engine/zoo/kinds.h"
#include "engine/zoo/net_text.h"

namespace dpt {
namespace {

/// First layers: torchvision's 7x7 convolution with stride 2 and max-pooling, or a 3x3 convolution
/// for small images.
enum class Stem : std::uint8_t { imagenet, cifar };
constexpr auto enum_names(Stem) {
  return std::to_array<EnumName<Stem>>({{Stem::imagenet, "imagenet"}, {Stem::cifar, "cifar"}});
}

struct ResnetOptions {
  std::int64_t classes = 0;
  Stem stem = Stem::imagenet;
  std::int64_t width = 64;
  bool sync = false;
};
/// Shortcut that changes width and image size: a 1x1 convolution with batch norm, or every second
/// pixel of the image, padded with zero channels (options B and A of the paper).
enum class Shortcut : std::uint8_t { projection, pad };
constexpr auto enum_names(Shortcut) {
  return std::to_array<EnumName<Shortcut>>(
      {{Shortcut::projection, "projection"}, {Shortcut::pad, "pad"}});
}

struct CifarResnetOptions {
  std::int64_t classes = 0;
  std::int64_t width = 16;
  Shortcut shortcut = Shortcut::projection;
  bool sync = false;
};

/// Differences between the networks of a family.
struct Shape {
  std::vector<int> blocks;  ///< number of blocks of each stage
  bool is_bottleneck = false;
  Shortcut shortcut = Shortcut::projection;
  bool sync = false;  ///< `sync` of every batch norm
};

/// Returns the shortcut of a block to `out` channels. It halves the image if the stride is 2. A
/// padded shortcut has half as many input channels, and adds equal numbers of zero channels before
/// and after them.
std::string shortcut_layers(const Shape& net, std::int64_t out, std::int64_t stride) {
  if (net.shortcut == Shortcut::projection) {
    return zoo::sequential("downsample", {zoo::fan_out_conv("", {out, 1, stride, 0, false}),
                                          zoo::batch_norm("", net.sync)});
  }
  const std::int64_t added = out / 2, before = added / 2;
  return zoo::sequential(
      "downsample", {zoo::layer("AvgPool2d", "", fmt::format("kernel_size: 1, stride: {}", stride)),
                     zoo::layer("PadChannels", "",
                                fmt::format("before: {}, after: {}", before, added - before))});
}

/// Returns a block without a name: its index in a stage becomes its name. In a bottleneck, the 3x3
/// convolution has the stride, as in torchvision.
std::string residual_block(const Shape& net, std::int64_t width, std::int64_t stride,
                           bool changes_shape) {
  const std::int64_t out = net.is_bottleneck ? 4 * width : width;
  zoo::Layers branch;
  const auto add = [&](int number, const zoo::Conv& shape) {
    branch.push_back(zoo::fan_out_conv(fmt::format("conv{}", number), shape));
    branch.push_back(zoo::batch_norm(fmt::format("bn{}", number), net.sync));
  };
  const auto add_relu = [&](int number) {
    branch.push_back(zoo::layer("ReLU", fmt::format("relu{}", number)));
  };
  if (net.is_bottleneck) {
    add(1, {width, 1, 1, 0, false});
    add_relu(1);
    add(2, {width, 3, stride, 1, false});
    add_relu(2);
    add(3, {out, 1, 1, 0, false});
  } else {
    add(1, {width, 3, stride, 1, false});
    add_relu(1);
    add(2, {width, 3, 1, 1, false});
  }
  std::string parts = "layers: " + zoo::list_of(branch);
  if (changes_shape) {
    parts += ", shortcut: " + zoo::list_of({shortcut_layers(net, out, stride)});
  }
  return zoo::layer("Residual", "", parts + ", activation: ReLU");
}

/// Adds layer1, layer2, ... Each except the first halves the image and doubles the width.
void add_stages(zoo::Layers& layers, const Shape& shape, std::int64_t width) {
  for (std::size_t stage = 0; stage < shape.blocks.size(); ++stage) {
    zoo::Layers blocks;
    for (int i = 0; i < shape.blocks[stage]; ++i) {
      const bool is_first = i == 0;
      const std::int64_t stride = is_first && stage > 0 ? 2 : 1;
      const bool changes_shape = is_first && (stage > 0 || shape.is_bottleneck);
      blocks.push_back(residual_block(shape, width, stride, changes_shape));
    }
    layers.push_back(zoo::sequential(fmt::format("layer{}", stage + 1), blocks));
    width *= 2;
  }
}

void add_stem(zoo::Layers& layers, Stem stem, std::int64_t width, bool sync) {
  const bool is_small = stem == Stem::cifar;
  layers.push_back(zoo::fan_out_conv(
      "conv1", is_small ? zoo::Conv{width, 3, 1, 1, false} : zoo::Conv{width, 7, 2, 3, false}));
  zoo::append(layers, {zoo::batch_norm("bn1", sync), zoo::layer("ReLU", "relu")});
  if (!is_small) {
    layers.push_back(zoo::layer("MaxPool2d", "maxpool", "kernel_size: 3, stride: 2, padding: 1"));
  }
}

void add_head(zoo::Layers& layers, std::int64_t classes) {
  zoo::append(layers, {zoo::layer("AdaptiveAvgPool2d", "avgpool"), zoo::layer("Flatten", "flatten"),
                       zoo::linear("fc", classes)});
}

std::string resnet(const std::string& name, const Variant& options) {
  const auto& o = options.as<ResnetOptions>();
  const bool is_18 = name == "resnet18";
  zoo::Layers layers;
  add_stem(layers, o.stem, o.width, o.sync);
  add_stages(layers,
             {is_18 ? std::vector<int>{2, 2, 2, 2} : std::vector<int>{3, 4, 6, 3},
              name == "resnet50", Shortcut::projection, o.sync},
             o.width);
  add_head(layers, o.classes);
  return zoo::list_of(layers);
}

/// Returns the layers of a CIFAR network: 6n + 2 layers in three stages of n blocks.
std::string cifar_resnet(const std::string& name, const Variant& options) {
  const auto& o = options.as<CifarResnetOptions>();
  const int blocks = name == "resnet20" ? 3 : 9;
  zoo::Layers layers;
  add_stem(layers, Stem::cifar, o.width, o.sync);
  add_stages(layers, {{blocks, blocks, blocks}, false, o.shortcut, o.sync}, o.width);
  add_head(layers, o.classes);
  return zoo::list_of(layers);
}

ObjectTable resnet_table(const char* name, const char* doc) {
  using O = ResnetOptions;
  return object_table<O>(
      name, doc,
      {zoo::classes_field<O>(),
       field("stem", &O::stem,
             "imagenet: a 7x7 convolution with stride 2 and max-pooling, as in torchvision; cifar: "
             "a 3x3 convolution, for images of about 32x32."),
       field("width", &O::width,
             "Channels of the first stage; each later stage has twice as many as the one before.")
           .range(1, 4096),
       zoo::sync_field<O>()});
}

ObjectTable cifar_resnet_table(const char* name, const char* doc) {
  using O = CifarResnetOptions;
  return object_table<O>(
      name, doc,
      {zoo::classes_field<O>(),
       field("width", &O::width,
             "Channels of the first stage; each later stage has twice as many as the one before.")
           .range(1, 4096),
       field("shortcut", &O::shortcut,
             "Shortcut where the width changes. projection: a 1x1 convolution with batch norm (the "
             "paper's option B). pad: no parameters; every second pixel is kept and channels of "
             "zeros are added, half of them before the image's channels and half after (option A, "
             "which the paper uses for CIFAR)."),
       zoo::sync_field<O>()});
}

}  // namespace

std::vector<ZooNet> resnet_family() {
  static const ObjectTable resnet18 =
      resnet_table("resnet18", "ResNet-18, like torchvision's resnet18.");
  static const ObjectTable resnet34 =
      resnet_table("resnet34", "ResNet-34, like torchvision's resnet34.");
  static const ObjectTable resnet50 =
      resnet_table("resnet50", "ResNet-50, like torchvision's resnet50.");
  static const ObjectTable resnet20 = cifar_resnet_table(
      "resnet20", "ResNet-20 for images of about 32x32, with torchvision's names.");
  static const ObjectTable resnet56 =
      cifar_resnet_table("resnet56", "ResNet-56, built like resnet20.");
  return {{&resnet18, &resnet},
          {&resnet34, &resnet},
          {&resnet50, &resnet},
          {&resnet20, &cifar_resnet},
          {&resnet56, &cifar_resnet}};
}

}  // namespace dpt
