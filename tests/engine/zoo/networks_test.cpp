// The larger networks of the zoo: names, shapes and numbers of parameters are those of torchvision
// or of the papers.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

#include "app/catalog.h"
#include "engine/spec/read_spec.h"
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

struct Norm {};
struct DropoutOptions {
  double p = 0.5;
};

/// The catalog of the program with stand-ins for those layers of the zoo that it lacks, so that all
/// networks can be read.
const Catalog& complete_catalog() {
  static const ObjectTable norm = object_table<Norm>("BatchNorm2d", "Stands in.", {});
  static const ObjectTable dropout = object_table<DropoutOptions>(
      "Dropout", "Stands in.", {field("p", &DropoutOptions::p, "Probability.").range(0, 1)});
  static const Catalog all = [] {
    Catalog made = catalog();
    for (const ObjectTable* table : {&norm, &dropout}) {
      const auto is_known = [&](const ObjectTable* kind) { return kind->name == table->name; };
      std::vector<const ObjectTable*>& kinds = made.layers.alternatives;
      if (std::none_of(kinds.begin(), kinds.end(), is_known)) kinds.push_back(table);
    }
    return made;
  }();
  return all;
}

TrainSpec complete_spec(const std::string& model) {
  return load_spec_text(complete_catalog(), net_config(model), "test.yaml");
}

PlainValue value_of(const LayerSpec& layer, const std::string& name) {
  for (const Field& field : layer.op.table->fields) {
    if (field.name == name) return field.get(layer.op.options.get());
  }
  FAIL(layer.name << " has no field " << name);
  return {};
}
std::int64_t integer_of(const LayerSpec& layer, const std::string& name) {
  return std::get<std::int64_t>(value_of(layer, name));
}
std::int64_t side_of(const LayerSpec& layer, const std::string& name) {
  return std::get<Size2>(value_of(layer, name)).h;
}

/// An image of `side` x `side`, or a vector (side 0).
struct Shape {
  std::int64_t channels = 0, side = 0;
  bool operator==(const Shape&) const = default;
};

/// What a network holds, worked out from its layers without the program's own shapes: so that
/// layers which it lacks do not matter.
struct Contents {
  std::int64_t params = 0;
  Texts state;  ///< "name shape" of each tensor, as state_dict has them
  Shape out;

  void add(const std::string& name, const std::vector<std::int64_t>& shape, bool is_param = true) {
    std::int64_t count = 1;
    for (const std::int64_t size : shape) count *= size;
    if (is_param) params += count;
    state.push_back(name + (shape.empty() ? " scalar" : fmt::format(" {}", fmt::join(shape, "x"))));
  }
};

Contents contents_of(const TrainSpec& spec) {
  Contents made;
  std::map<std::string, Shape> shapes;
  const Shape image{spec.model.input[0], spec.model.input[1]};
  Shape last = image;
  for (const LayerSpec& layer : spec.model.layers) {
    Shape in = last;
    if (!layer.from.empty()) in = layer.from[0] == "input" ? image : shapes.at(layer.from[0]);
    Shape out = in;
    const std::string& type = layer.op.type;
    if (type == "Conv2d" || type == "MaxPool2d") {
      const std::int64_t kernel = side_of(layer, "kernel_size"), stride = side_of(layer, "stride"),
                         padding = side_of(layer, "padding");
      out.side = (in.side + 2 * padding - kernel) / stride + 1;
      if (type == "Conv2d") {
        out.channels = integer_of(layer, "out_channels");
        made.add(layer.name + ".weight", {out.channels, in.channels, kernel, kernel});
        if (std::get<bool>(value_of(layer, "bias"))) made.add(layer.name + ".bias", {out.channels});
      }
    } else if (type == "BatchNorm2d") {
      made.add(layer.name + ".weight", {in.channels});
      made.add(layer.name + ".bias", {in.channels});
      made.add(layer.name + ".running_mean", {in.channels}, false);
      made.add(layer.name + ".running_var", {in.channels}, false);
      made.add(layer.name + ".num_batches_tracked", {}, false);
    } else if (type == "AdaptiveAvgPool2d") {
      out.side = side_of(layer, "output_size");
    } else if (type == "Flatten") {
      out = {in.channels * in.side * in.side, 0};
    } else if (type == "Linear") {
      out.channels = integer_of(layer, "out_features");
      made.add(layer.name + ".weight", {out.channels, in.channels});
      made.add(layer.name + ".bias", {out.channels});
    } else if (type == "Add") {
      for (const std::string& from : layer.from) {
        CHECK_MESSAGE(shapes.at(from) == in, layer.name, " adds ", from);
      }
    } else {
      CHECK_MESSAGE((type == "ReLU" || type == "Dropout"), layer.name, " is a ", type);
    }
    shapes[layer.name] = last = out;
  }
  made.out = last;
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
  CHECK(nets.size() == 5);
  for (const auto& [name, expected] : nets) {
    CAPTURE(name);
    const Contents found = contents_of(
        complete_spec(fmt::format("{{input: [3, 224, 224], zoo: {}, classes: 1000}}", name)));
    CHECK(found.params == expected.first);
    CHECK(found.state.size() == expected.second.size());
    const auto differs = std::mismatch(found.state.begin(), found.state.end(),
                                       expected.second.begin(), expected.second.end());
    if (differs.first != found.state.end() && differs.second != expected.second.end()) {
      FAIL_CHECK("expected " << *differs.second << ", found " << *differs.first);
    }
    CHECK(found.out == Shape{1000, 0});
  }
}

TEST_CASE("the number of parameters of each network") {
  const auto params = [](const std::string& net) {
    const Contents found = contents_of(complete_spec("{" + net + "}"));
    CHECK(found.out.side == 0);
    return found.params;
  };
  const std::string large = "input: [3, 224, 224], classes: 1000, zoo: ";
  CHECK(params(large + "vgg11") == 132'863'336);
  CHECK(params(large + "vgg16_bn") == 138'365'992);
  CHECK(params(large + "resnet34") == 21'797'672);
  const std::string small = "input: [3, 32, 32], classes: 10, zoo: ";
  // torchvision's with conv1 replaced by a 3x3 one, and fc by one of ten classes.
  CHECK(params(small + "resnet18, stem: cifar") == 11'173'962);
  CHECK(params(small + "resnet20") == 272'474);
  CHECK(params(small + "resnet56") == 855'770);
  CHECK(params(small + "wide_resnet28_10") == 36'479'194);
  CHECK(params(small + "wide_resnet28_10, depth: 16, width: 4") == 2'748'890);
  CHECK(params(small + "wide_resnet28_10, dropout: 0.3") == 36'479'194);
  CHECK(params(small + "vgg16_bn, hidden: 512") ==
        14'723'136 + (25'088 * 512 + 512) + (512 * 512 + 512) + (512 * 10 + 10));
  CHECK(params(small + "resnet50, width: 16, stem: cifar") > 1'000'000);
}

TEST_CASE("how the networks of the zoo are built, where parameters do not tell") {
  const auto lines = [](const std::string& net) {
    Texts all;
    for (const LayerSpec& layer : complete_spec("{" + net + "}").model.layers) {
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
  has(lines(small + "wide_resnet28_10, dropout: 0.3"),
      {"layer2.0.bn1 BatchNorm2d", "layer2.0.relu1 ReLU", "layer2.0.conv1 Conv2d /2",
       "layer2.0.bn2 BatchNorm2d", "layer2.0.relu2 ReLU", "layer2.0.dropout Dropout",
       "layer2.0.conv2 Conv2d /1", "layer2.0.downsample Conv2d /2 < layer2.0.relu1",
       "layer2.0.add Add < layer2.0.conv2, layer2.0.downsample", "layer2.1.bn1 BatchNorm2d"});
  // The starting weights of torchvision.
  const TrainSpec spec = complete_spec("{" + small + "resnet20}");
  CHECK(std::get<double>(value_of(spec.model.layers[0], "weight_init_std")) ==
        doctest::Approx(std::sqrt(2.0 / (16 * 9))));
  const ReadResult depth = read_spec_text(
      complete_catalog(), net_config("{" + small + "wide_resnet28_10, depth: 27}"), "test.yaml");
  REQUIRE(depth.issues.size() == 1);
  CHECK(depth.issues[0].text ==
        "network wide_resnet28_10: expected a depth of 6n + 4 (10, 16, 22, "
        "28, 40, ...), found 27");
}
