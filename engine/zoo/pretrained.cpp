#include "engine/zoo/pretrained.h"

#include <algorithm>
#include <array>
#include <iterator>

#include <fmt/format.h>

namespace dpt {
namespace {

/// Returns the map for VGG. In timm, the first linear layers are convolutions with the same values.
TextPairs vgg_names() {
  return {{"pre_logits.fc1.", "classifier.0."},
          {"pre_logits.fc2.", "classifier.3."},
          {"head.fc.", "classifier.6."}};
}

/// Returns the map for MobileNetV2. timm numbers the blocks of each stage; torchvision numbers the
/// blocks of all stages together, as features.
TextPairs mobilenet_v2_names() {
  constexpr std::array kBlocks = {1, 2, 3, 4, 3, 3, 1};  // blocks of each stage
  TextPairs map = {{"conv_stem.", "features.0.0."}, {"bn1.", "features.0.1."}};
  int feature = 1;
  for (std::size_t stage = 0; stage < kBlocks.size(); ++stage) {
    for (int block = 0; block < kBlocks[stage]; ++block, ++feature) {
      const std::string from = fmt::format("blocks.{}.{}.", stage, block);
      const std::string to = fmt::format("features.{}.conv.", feature);
      if (stage == 0) {  // the block of this stage has no expansion
        map.insert(map.end(), {{from + "conv_dw.", to + "0.0."},
                               {from + "bn1.", to + "0.1."},
                               {from + "conv_pw.", to + "1."},
                               {from + "bn2.", to + "2."}});
      } else {
        map.insert(map.end(), {{from + "conv_pw.", to + "0.0."},
                               {from + "bn1.", to + "0.1."},
                               {from + "conv_dw.", to + "1.0."},
                               {from + "bn2.", to + "1.1."},
                               {from + "conv_pwl.", to + "2."},
                               {from + "bn3.", to + "3."}});
      }
    }
  }
  map.insert(map.end(), {{"conv_head.", "features.18.0."},
                         {"bn2.", "features.18.1."},
                         {"classifier.", "classifier.1."}});
  return map;
}

/// Returns the map for ConvNeXt. torchvision numbers the stages, and the layers between them, as
/// features.
TextPairs convnext_tiny_names() {
  constexpr std::array kBlocks = {3, 3, 9, 3};  // blocks of each stage
  TextPairs map = {{"stem.", "features.0."}};
  for (std::size_t stage = 0; stage < kBlocks.size(); ++stage) {
    if (stage > 0) {
      map.emplace_back(fmt::format("stages.{}.downsample.", stage),
                       fmt::format("features.{}.", 2 * stage));
    }
    for (int block = 0; block < kBlocks[stage]; ++block) {
      const std::string from = fmt::format("stages.{}.blocks.{}.", stage, block);
      const std::string to = fmt::format("features.{}.{}.", 2 * stage + 1, block);
      map.insert(map.end(), {{from + "conv_dw.", to + "block.0."},
                             {from + "norm.", to + "block.2."},
                             {from + "mlp.fc1.", to + "block.3."},
                             {from + "mlp.fc2.", to + "block.5."},
                             {from + "gamma", to + "layer_scale"}});
    }
  }
  map.insert(map.end(), {{"head.norm.", "classifier.0."}, {"head.fc.", "classifier.2."}});
  return map;
}

/// All weights were trained on ImageNet-1k. For the other torchvision networks of the zoo, the hub
/// has no weights that give equal outputs: timm's mobilenet_v3_small, for example, has a different
/// eps.
const std::vector<PretrainedWeights>& table() {
  static const std::vector<PretrainedWeights> rows = {
      {"resnet18", "hf://timm/resnet18.tv_in1k", {}},
      {"resnet34", "hf://timm/resnet34.tv_in1k", {}},
      {"resnet50", "hf://timm/resnet50.tv_in1k", {}},
      {"vgg11", "hf://timm/vgg11.tv_in1k", vgg_names()},
      {"vgg11_bn", "hf://timm/vgg11_bn.tv_in1k", vgg_names()},
      {"vgg16", "hf://timm/vgg16.tv_in1k", vgg_names()},
      {"vgg16_bn", "hf://timm/vgg16_bn.tv_in1k", vgg_names()},
      {"densenet121", "hf://timm/densenet121.tv_in1k", {}},
      {"mobilenet_v2", "hf://timm/mobilenetv2_100.ra_in1k", mobilenet_v2_names()},
      {"convnext_tiny", "hf://timm/convnext_tiny.fb_in1k", convnext_tiny_names()},
  };
  return rows;
}

}  // namespace

const PretrainedWeights* pretrained_weights(const std::string& network) {
  const auto row = std::find_if(table().begin(), table().end(), [&](const PretrainedWeights& each) {
    return each.network == network;
  });
  return row == table().end() ? nullptr : &*row;
}

bool is_pretrained_file(const std::string& file) {
  return std::any_of(table().begin(), table().end(),
                     [&](const PretrainedWeights& row) { return row.file == file; });
}

std::vector<std::string> pretrained_networks() {
  std::vector<std::string> names;
  std::transform(table().begin(), table().end(), std::back_inserter(names),
                 [](const PretrainedWeights& row) { return row.network; });
  return names;
}

}  // namespace dpt
