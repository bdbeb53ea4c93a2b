// The larger networks of the zoo: names, shapes and parameter counts match torchvision or the
// papers.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

#include "app/base/catalog.h"
#include "engine/config/read_spec.h"
#include "engine/graph/make_plan.h"
#include "engine/graph/plan.h"
#include "tests/cli/program.h"

using namespace dpt;
using namespace dpt::testing;
using Texts = std::vector<std::string>;

namespace {

std::string net_config(const std::string& model) {
  return "data: {dataset: synthetic, batch_size: 8}\noptimizer: {type: SGD, lr: 0.1}\n"
         "train: {epochs: 1}\nmodel: " +
         model + "\n";
}

TrainSpec network_spec(const std::string& model) {
  return load_spec_text(catalog(), net_config(model), "test.yaml");
}

PlainValue value_of(const LayerSpec& layer, const std::string& name) {
  for (const Field& field : layer.op.table->fields) {
    if (field.name == name) return field.get(layer.op.options.get());
  }
  FAIL(layer.name << " has no field " << name);
  return {};
}
std::int64_t side_of(const LayerSpec& layer, const std::string& name) {
  return std::get<Size2>(value_of(layer, name)).h;
}

/// The parameter count and tensors of a network.
struct Contents {
  std::int64_t params = 0;
  Texts state;  ///< "name shape" of each tensor, as in a state_dict
  std::int64_t classes = 0;
};

Contents contents_of(const TrainSpec& spec) {
  const Plan plan = make_plan(spec);
  Contents made{plan.param_count, {}, plan.classes};
  for (const Param& param : plan.params) {
    const std::vector<std::int64_t>& shape = param.spec.file_shape;
    made.state.push_back(param.name +
                         (shape.empty() ? " scalar" : fmt::format(" {}", fmt::join(shape, "x"))));
  }
  return made;
}

}  // namespace

TEST_CASE("torchvision's networks have torchvision's names, shapes and numbers of parameters") {
  std::istringstream golden(read_file(source_dir() + "/tests/engine/zoo/torchvision.txt"));
  std::map<std::string, std::pair<std::int64_t, Texts>> nets;
  std::string current;
  for (std::string line; std::getline(golden, line);) {
    if (line.starts_with("  ")) {
      nets[current].second.push_back(line.substr(2));
    } else {
      const std::size_t space = line.find(' ');
      current = line.substr(0, space);
      nets[current].first = std::stoll(line.substr(space));
    }
  }
  CHECK(nets.size() == 10);
  for (auto& [name, expected] : nets) {
    CAPTURE(name);
    Contents found = contents_of(
        network_spec(fmt::format("{{input: [3, 224, 224], zoo: {}, classes: 1000}}", name)));
    CHECK(found.params == expected.first);
    if (name == "convnext_tiny") {
      // PyTorch lists a module's own parameters first. There, layer_scale is one of them; here it
      // is a layer, so the order differs.
      std::sort(found.state.begin(), found.state.end());
      std::sort(expected.second.begin(), expected.second.end());
    }
    CHECK(found.state.size() == expected.second.size());
    const auto differs = std::mismatch(found.state.begin(), found.state.end(),
                                       expected.second.begin(), expected.second.end());
    if (differs.first != found.state.end() && differs.second != expected.second.end()) {
      FAIL_CHECK("expected " << *differs.second << ", found " << *differs.first);
    }
    CHECK(found.classes == 1000);
  }
}

TEST_CASE("the number of parameters of each network") {
  const auto params = [](const std::string& net) {
    const Contents found = contents_of(network_spec("{" + net + "}"));
    return found.params;
  };
  const std::string large = "input: [3, 224, 224], classes: 1000, zoo: ";
  CHECK(params(large + "vgg11") == 132'863'336);
  CHECK(params(large + "vgg16_bn") == 138'365'992);
  CHECK(params(large + "resnet34") == 21'797'672);
  const std::string small = "input: [3, 32, 32], classes: 10, zoo: ";
  // torchvision's network with conv1 replaced by a 3x3 one, and fc by one of ten classes.
  CHECK(params(small + "resnet18, stem: cifar") == 11'173'962);
  CHECK(params(small + "resnet20") == 272'474);
  CHECK(params(small + "resnet56") == 855'770);
  // The paper says 0.27 and 0.85 million.
  CHECK(params(small + "resnet20, shortcut: pad") == 269'722);
  CHECK(params(small + "resnet56, shortcut: pad") == 853'018);
  CHECK(params(small + "wide_resnet28_10") == 36'479'194);
  CHECK(params(small + "wide_resnet28_10, depth: 16, width: 4") == 2'748'890);
  CHECK(params(small + "wide_resnet28_10, dropout: 0.3") == 36'479'194);
  CHECK(params(small + "vgg16_bn, hidden: 512") ==
        14'723'136 + (25'088 * 512 + 512) + (512 * 512 + 512) + (512 * 10 + 10));
  CHECK(params(small + "resnet50, width: 16, stem: cifar") > 1'000'000);
  // torchvision's networks with width_mult, and with growth_rate and num_init_features.
  CHECK(params(small + "mobilenet_v2, width: 0.35") == 408'938);
  CHECK(params(small + "mobilenet_v3_small, width: 0.5") == 409'394);
  CHECK(params(small + "densenet121, growth_rate: 12, dropout: 0.1") == 1'003'546);
}

TEST_CASE("properties of the zoo's networks that parameters do not show") {
  const auto lines = [](const std::string& net) {
    Texts all;
    for (const LayerSpec& layer : network_spec("{" + net + "}").model.layers) {
      all.push_back(layer.name + " " + layer.op.type);
      if (layer.op.type == "Conv2d") all.back() += fmt::format(" /{}", side_of(layer, "stride"));
      if (!layer.from.empty()) all.back() += fmt::format(" < {}", fmt::join(layer.from, ", "));
    }
    return all;
  };
  const auto has = [](const Texts& all, const Texts& part) {
    CHECK_MESSAGE(std::search(all.begin(), all.end(), part.begin(), part.end()) != all.end(),
                  fmt::format("{}", fmt::join(all, "\n")));
  };
  const std::string small = "input: [3, 32, 32], classes: 10, zoo: ";
  const Texts resnet = lines("input: [3, 224, 224], classes: 10, zoo: resnet50");
  has(resnet, {"conv1 Conv2d /2", "bn1 BatchNorm2d", "relu ReLU", "maxpool MaxPool2d",
               "layer1.0.conv1 Conv2d /1"});
  has(resnet,
      {"layer2.0.conv1 Conv2d /1", "layer2.0.bn1 BatchNorm2d", "layer2.0.relu1 ReLU",
       "layer2.0.conv2 Conv2d /2", "layer2.0.bn2 BatchNorm2d", "layer2.0.relu2 ReLU",
       "layer2.0.conv3 Conv2d /1", "layer2.0.bn3 BatchNorm2d",
       "layer2.0.downsample.0 Conv2d /2 < layer1.2.activation", "layer2.0.downsample.1 BatchNorm2d",
       "layer2.0.add Add < layer2.0.bn3, layer2.0.downsample.1", "layer2.0.activation ReLU"});
  has(lines(small + "resnet18, stem: cifar"),
      {"conv1 Conv2d /1", "bn1 BatchNorm2d", "relu ReLU", "layer1.0.conv1 Conv2d /1"});
  has(lines(small + "resnet20, shortcut: pad"),
      {"layer2.0.downsample.0 AvgPool2d < layer1.2.activation", "layer2.0.downsample.1 PadChannels",
       "layer2.0.add Add < layer2.0.bn2, layer2.0.downsample.1", "layer2.0.activation ReLU"});
  has(lines(small + "wide_resnet28_10, dropout: 0.3"),
      {"layer2.0.bn1 BatchNorm2d", "layer2.0.relu1 ReLU", "layer2.0.conv1 Conv2d /2",
       "layer2.0.bn2 BatchNorm2d", "layer2.0.relu2 ReLU", "layer2.0.dropout Dropout",
       "layer2.0.conv2 Conv2d /1", "layer2.0.downsample Conv2d /2 < layer2.0.relu1",
       "layer2.0.add Add < layer2.0.conv2, layer2.0.downsample", "layer2.1.bn1 BatchNorm2d"});
  const Texts v3 = lines(small + "mobilenet_v3_small");
  has(v3, {"features.1.block.0.2 ReLU", "features.1.block.1.avgpool AdaptiveAvgPool2d",
           "features.1.block.1.fc1 Conv2d /1", "features.1.block.1.activation ReLU",
           "features.1.block.1.fc2 Conv2d /1", "features.1.block.1.scale_activation Hardsigmoid",
           "features.1.block.1.scaled Multiply < features.1.block.1.scale_activation, "
           "features.1.block.0.2",
           "features.1.block.2.0 Conv2d /1", "features.1.block.2.1 BatchNorm2d",
           "features.2.block.0.0 Conv2d /1"});
  has(v3, {"features.3.block.2.1 BatchNorm2d",
           "features.3.add Add < features.3.block.2.1, features.2.block.2.1",
           "features.4.block.0.0 Conv2d /1", "features.4.block.0.1 BatchNorm2d",
           "features.4.block.0.2 Hardswish", "features.4.block.1.0 Conv2d /2"});
  has(lines(small + "mobilenet_v2"),
      {"features.1.conv.0.2 ReLU6", "features.1.conv.1 Conv2d /1", "features.1.conv.2 BatchNorm2d",
       "features.2.conv.0.0 Conv2d /1", "features.2.conv.0.1 BatchNorm2d",
       "features.2.conv.0.2 ReLU6", "features.2.conv.1.0 Conv2d /2"});
  has(lines(small + "squeezenet1_1"),
      {"features.3.squeeze Conv2d /1", "features.3.squeeze_activation ReLU",
       "features.3.expand1x1 Conv2d /1", "features.3.expand1x1_activation ReLU",
       "features.3.expand3x3 Conv2d /1 < features.3.squeeze_activation",
       "features.3.expand3x3_activation ReLU",
       "features.3.concat Concat < features.3.expand1x1_activation, "
       "features.3.expand3x3_activation"});
  has(lines(small + "densenet121"),
      {"features.denseblock2.denselayer1.conv2 Conv2d /1",
       "features.denseblock2.concat1 Concat < features.transition1.pool, "
       "features.denseblock2.denselayer1.conv2",
       "features.denseblock2.denselayer2.norm1 BatchNorm2d"});
  has(lines(small + "convnext_tiny"),
      {"features.3.0.block.0 Conv2d /1", "features.3.0.block.2 LayerNorm2d",
       "features.3.0.block.3 Linear", "features.3.0.block.4 GELU", "features.3.0.block.5 Linear",
       "features.3.0.layer_scale LayerScale", "features.3.0.stochastic_depth StochasticDepth",
       "features.3.0.add Add < features.3.0.stochastic_depth, features.2.1"});
  // With one class, the network has a single output: a value, or the logit of a sigmoid.
  const TrainSpec one = network_spec("{input: [3, 32, 32], classes: 1, zoo: resnet20}");
  CHECK(std::get<std::int64_t>(value_of(one.model.layers.back(), "out_features")) == 1);
  // The initialisation is torchvision's.
  const TrainSpec spec = network_spec("{" + small + "resnet20}");
  CHECK(std::get<double>(value_of(spec.model.layers[0], "weight_init_std")) ==
        doctest::Approx(std::sqrt(2.0 / (16 * 9))));
  const ReadResult depth = read_spec_text(
      catalog(), net_config("{" + small + "wide_resnet28_10, depth: 27}"), "test.yaml");
  REQUIRE(depth.issues.size() == 1);
  CHECK(depth.issues[0].text ==
        "network wide_resnet28_10: expected a depth of 6n + 4 (10, 16, 22, "
        "28, 40, ...), found 27");
}
