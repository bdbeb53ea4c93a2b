// The networks of the zoo: names, shapes and parameter counts match torchvision or the papers.
#include "engine/zoo/zoo.h"

#include <doctest/doctest.h>

#include "app/base/catalog.h"
#include "engine/config/read_spec.h"
#include "engine/config/show_spec.h"
#include "engine/graph/make_plan.h"
#include "engine/graph/plan.h"
#include "tests/cli/program.h"

using namespace dpt;
using namespace dpt::testing;
using Texts = std::vector<std::string>;

namespace {

std::string config(const std::string& model) {
  return "data: {dataset: synthetic, batch_size: 8}\noptimizer: {type: SGD, lr: 0.1}\n"
         "train: {epochs: 1}\nmodel: " +
         model + "\n";
}
TrainSpec spec_of(const std::string& model) {
  return load_spec_text(catalog(), config(model), "test.yaml");
}

/// Returns "name shape" of each parameter.
Texts params_of(const Plan& plan) {
  Texts lines;
  for (const Param& param : plan.params) {
    lines.push_back(fmt::format("{} {}", param.name, fmt::join(param.spec.file_shape, "x")));
  }
  return lines;
}

}  // namespace

TEST_CASE("logistic, mlp and lenet") {
  const Plan logistic = make_plan(spec_of("{input: [1, 28, 28], zoo: logistic, classes: 10}"));
  CHECK(params_of(logistic) == Texts{"fc.weight 10x784", "fc.bias 10"});
  const Plan mlp = make_plan(spec_of("{input: [1, 8, 8], zoo: mlp, classes: 3, hidden: [20, 30]}"));
  CHECK(params_of(mlp) == Texts{"fc1.weight 20x64", "fc1.bias 20", "fc2.weight 30x20",
                                "fc2.bias 30", "fc3.weight 3x30", "fc3.bias 3"});
  CHECK(mlp.rows[2].type == "ReLU");
  CHECK(make_plan(spec_of("{input: [1, 8, 8], zoo: mlp, classes: 3}")).param_count ==
        64 * 128 + 128 + 128 * 3 + 3);

  // The zoo's lenet has the layers of the shipped config.
  const TrainSpec shipped =
      load_spec(catalog(), source_dir() + "/configs/lenet-fashion-mnist.yaml");
  const TrainSpec lenet = spec_of("{input: [1, 28, 28], zoo: lenet, classes: 10}");
  const Plan expected = make_plan(shipped), found = make_plan(lenet);
  CHECK(params_of(found) == params_of(expected));
  REQUIRE(found.rows.size() == expected.rows.size());
  for (std::size_t i = 0; i < found.rows.size(); ++i) {
    CHECK(found.rows[i].name == expected.rows[i].name);
    CHECK(found.rows[i].type == expected.rows[i].type);
    CHECK(found.rows[i].detail == expected.rows[i].detail);
    CHECK(found.rows[i].out.text() == expected.rows[i].out.text());
  }
  CHECK(params_of(make_plan(spec_of("{input: [1, 32, 32], zoo: lenet, classes: 10, channels: [6, "
                                    "16], kernel_sizes: [5, 5], hidden: 120}")))[4] ==
        "fc1.weight 120x400");
}

TEST_CASE("valid and invalid options of a network") {
  const auto issue = [](const std::string& model) {
    const ReadResult result = read_spec_text(catalog(), config(model), "test.yaml");
    REQUIRE(result.issues.size() == 1);
    return result.issues[0].text;
  };
  CHECK(issue("{input: [1, 8, 8], zoo: lenett, classes: 10}")
            .starts_with("unknown network 'lenett', did you mean 'lenet'? Known networks: "
                         "logistic, mlp, lenet"));
  CHECK(issue("{input: [1, 8, 8], zoo: mlp}").starts_with("missing key 'classes' in network mlp"));
  CHECK(issue("{input: [1, 8, 8], zoo: mlp, classes: 2, hidden: []}")
            .starts_with("expected a list of at least 1 integer"));
  CHECK(issue("{input: [1, 28, 28], zoo: lenet, classes: 2, channels: [1]}")
            .starts_with("expected a list of 2 integers"));
}

TEST_CASE("input and classes are those of the data set, where it has only one of each") {
  const auto spec_with = [](const std::string& data, const std::string& model) {
    return read_spec_text(
        catalog(),
        "data: {batch_size: 8, " + data +
            "}\noptimizer: {type: SGD, lr: 0.1}\ntrain: {epochs: 1}\nmodel: " + model + "\n",
        "test.yaml");
  };
  struct Case {
    const char* data;
    std::vector<std::int64_t> input;
    std::int64_t outputs;
  };
  for (const Case& each :
       {Case{"dataset: digits", {1, 8, 8}, 10}, Case{"dataset: mnist, root: x", {1, 28, 28}, 10},
        Case{"dataset: fashion_mnist, root: x", {1, 28, 28}, 10},
        Case{"dataset: cifar10, root: x", {3, 32, 32}, 10},
        Case{"dataset: cifar100, root: x", {3, 32, 32}, 100}}) {
    CAPTURE(each.data);
    const ReadResult result = spec_with(each.data, "{zoo: logistic}");
    REQUIRE(result.issues.empty());
    CHECK(result.spec.model.input == each.input);
    CHECK(make_plan(result.spec).classes == each.outputs);
    // Explicit values are kept.
    const ReadResult other = spec_with(each.data, "{zoo: logistic, input: [2, 5, 5], classes: 7}");
    REQUIRE(other.issues.empty());
    CHECK(params_of(make_plan(other.spec)) == Texts{"fc.weight 7x50", "fc.bias 7"});
  }
  // A run keeps its values, whatever a later release knows about the data set.
  const TrainSpec kept = spec_with("dataset: digits", "{zoo: logistic}").spec;
  const std::string shown = show_spec(catalog(), kept);
  CHECK(shown.find("input: [1, 8, 8]") != std::string::npos);
  CHECK(shown.find("classes: 10") != std::string::npos);
  CHECK(load_stored_spec(catalog(), shown, "stored").model.input == kept.model.input);

  for (const char* data : {"dataset: synthetic, classes: 3", "dataset: idx, root: x",
                           "dataset: image_folder, root: x"}) {
    CAPTURE(data);
    const ReadResult unknown = spec_with(data, "{zoo: logistic, classes: 3}");
    REQUIRE(unknown.issues.size() == 1);
    CHECK(
        unknown.issues[0].text.starts_with("missing key 'input' in network logistic: Shape of one "
                                           "sample: [channels, height, width]."));
  }
  const ReadResult layers = spec_with("dataset: digits", "{layers: [{type: Flatten}]}");
  REQUIRE(layers.issues.size() == 1);
  CHECK(layers.issues[0].text.starts_with("missing key 'input' in model"));
}

TEST_CASE("sync of a network is that of each of its batch norms") {
  for (const std::string zoo :
       {"resnet18", "resnet34", "resnet50", "resnet20", "resnet56", "wide_resnet28_10", "vgg11_bn",
        "vgg16_bn", "mobilenet_v2", "mobilenet_v3_small", "densenet121"}) {
    CAPTURE(zoo);
    const auto norms = [&](const std::string& options) {
      const Plan plan =
          make_plan(spec_of("{input: [3, 32, 32], zoo: " + zoo + ", classes: 10" + options + "}"));
      int coupled = 0, synced = 0;
      for (const Node& node : plan.nodes) {
        coupled += node.coupling ? 1 : 0;
        synced += node.coupling && node.coupling->sync ? 1 : 0;
      }
      CHECK(coupled > 5);
      return std::pair(coupled, synced);
    };
    const int all = norms("").first;
    CHECK(norms("") == std::pair(all, 0));
    CHECK(norms(", sync: true") == std::pair(all, all));
  }
  const ReadResult without = read_spec_text(
      catalog(), config("{input: [3, 32, 32], zoo: vgg11, classes: 10, sync: true}"), "test.yaml");
  REQUIRE(without.issues.size() == 1);
  CHECK(without.issues[0].text.starts_with("unknown key 'sync' in network vgg11"));
}

TEST_CASE("layers of a network that do not fit the image are reported with the network's line") {
  try {
    make_plan(spec_of("{input: [1, 8, 8], zoo: lenet, classes: 10}"));
    FAIL("a LeNet cannot see images of 8x8");
  } catch (const Error& error) {
    CHECK(std::string(error.what()).starts_with("test.yaml:4:32: layer 'conv2' (Conv2d): "));
  }
}
