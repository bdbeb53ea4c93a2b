// The plans that make_plan builds from valid models.
#include "engine/graph/plan.h"

#include <array>

#include "engine/graph/make_plan.h"
#include "engine/graph/memory.h"
#include "engine/layers/param_spec.h"
#include "tests/support/model.h"

namespace dpt::testing {
namespace {

std::vector<std::string> node_names(const Plan& plan) {
  std::vector<std::string> names;
  for (const Node& node : plan.nodes) names.push_back(node.name);
  return names;
}

TEST_CASE("LeNet: parameters and FLOPs are those of the performance table") {
  const Plan plan = make_plan(lenet_spec());
  CHECK(plan.param_count == 129068);
  CHECK(plan.classes == 10);
  CHECK(plan.input.text() == "1x28x28");
  double forward = 0, backward = 0;
  for (const LayerRow& row : plan.rows) {
    forward += row.forward_flops;
    backward += row.backward_flops;
  }
  CHECK(forward == 4500720);
  CHECK(forward + backward == 13258800);
}

TEST_CASE("LeNet: parameters in layer order, 64-byte aligned, with torchvision's names") {
  const Plan plan = make_plan(lenet_spec());
  std::vector<std::string> names;
  std::int64_t end = 0;
  for (const Param& param : plan.params) {
    names.push_back(param.name);
    CHECK(param.offset == (end + 15) / 16 * 16);
    CHECK(plan.nodes[param.node].name + "." + param.spec.suffix == param.name);
    end = param.offset + param.count;
  }
  CHECK(names == std::vector<std::string>{"conv1.weight", "conv1.bias", "conv2.weight",
                                          "conv2.bias", "fc1.weight", "fc1.bias", "fc2.weight",
                                          "fc2.bias"});
  CHECK(plan.param_floats == (end + 15) / 16 * 16);
  CHECK(plan.grad_floats() == plan.param_floats + 32);
  CHECK(plan.params[4].spec.layout == ParamLayout::linear_hwc);
  CHECK(plan.params[4].spec.hwc == SampleShape{4, 4, 50});
  CHECK(plan.params[6].spec.layout == ParamLayout::plain);
}

TEST_CASE("LeNet: convolution, ReLU and pooling are one node") {
  const Plan plan = make_plan(lenet_spec());
  CHECK(node_names(plan) == std::vector<std::string>{"conv1", "conv2", "6", "fc1", "fc2"});
  CHECK(plan.nodes[0].source_layers == std::vector<int>{0, 1, 2});
  CHECK(plan.nodes[1].source_layers == std::vector<int>{3, 4, 5});
  CHECK(plan.nodes[2].is_view);
  CHECK(plan.nodes[3].source_layers == std::vector<int>{7, 8});
  CHECK_FALSE(plan.nodes[0].input_gradient);
  for (std::size_t i = 1; i < plan.nodes.size(); ++i) CHECK(plan.nodes[i].input_gradient);
  CHECK(plan.values.size() == 6);
  CHECK(plan.values[1].shape.text() == "20x13x13");
  CHECK(plan.logits == plan.nodes.back().output);
  CHECK(plan.nodes[1].where.line == 13);
}

TEST_CASE("LeNet: the rows show every layer as written") {
  const Plan plan = make_plan(lenet_spec());
  REQUIRE(plan.rows.size() == 10);
  CHECK(plan.rows[0].out.text() == "20x26x26");
  CHECK(plan.rows[0].params == 200);
  CHECK(plan.rows[0].fused_into.empty());
  CHECK(plan.rows[0].activation_bytes == 0);  // only the pooled output exists
  CHECK(plan.rows[1].fused_into == "conv1");
  CHECK(plan.rows[1].activation_bytes == 0);
  CHECK(plan.rows[2].fused_into == "conv1");
  CHECK(plan.rows[2].activation_bytes == 20 * 13 * 13 * 4);
  CHECK(plan.rows[0].backward_flops == plan.rows[0].forward_flops);
  CHECK(plan.rows[3].backward_flops == 2 * plan.rows[3].forward_flops);
  CHECK(plan.rows[6].activation_bytes == 0);
  CHECK(plan.rows[8].activation_bytes == 128 * 4);
  CHECK(plan.rows[9].out.text() == "10");
}

TEST_CASE("layers before the first parameters get no gradient; later ones do") {
  const Plan plan = make_plan(ModelSpecBuilder({1, 8, 8})
                                  .add("AvgPool2d", {{"kernel_size", square(2)}})
                                  .add("ReLU")
                                  .add("Flatten")
                                  .linear("a", 3)
                                  .linear("b", 2)
                                  .spec());
  REQUIRE(plan.nodes.size() == 5);
  for (int i = 0; i < 4; ++i) CHECK_FALSE(plan.nodes[i].input_gradient);
  CHECK(plan.nodes[4].input_gradient);
  CHECK(plan.rows[1].activation_bytes == 0);  // ReLU runs in place
  CHECK(plan.rows[3].backward_flops == plan.rows[3].forward_flops);
}

TEST_CASE("`from` may spell out the chain, and put the input by name") {
  const auto chain = [](bool spelled) {
    const auto from = [&](const std::string& name) {
      return spelled ? std::vector<std::string>{name} : std::vector<std::string>{};
    };
    const Options conv = {{"out_channels", integer(4)}, {"kernel_size", square(3)}};
    return make_plan(ModelSpecBuilder({1, 8, 8})
                         .add("Conv2d", conv, "c", from("input"))
                         .add("ReLU", {}, "r", from("c"))
                         .add("Flatten", {}, "f", from("r"))
                         .add("Linear", {{"out_features", integer(2)}}, "l", from("f"))
                         .spec());
  };
  const Plan plain = chain(false), spelled = chain(true);
  CHECK(node_names(plain) == node_names(spelled));
  REQUIRE(plain.nodes.size() == spelled.nodes.size());
  for (std::size_t i = 0; i < plain.nodes.size(); ++i) {
    CHECK(plain.nodes[i].inputs == spelled.nodes[i].inputs);
    CHECK(plain.nodes[i].source_layers == spelled.nodes[i].source_layers);
  }
}

TEST_CASE("shared weights are parameters of the first layer, which the others name") {
  TrainSpec spec = ModelSpecBuilder({4, 1, 1})
                       .add("Flatten")
                       .linear("a", 4)
                       .linear("b", 4)
                       .add("ReLU")
                       .linear("c", 4)
                       .shares("a")
                       .linear("d", 4)
                       .shares("b")
                       .linear("e", 4)
                       .shares("a")
                       .linear("f", 2)
                       .spec();
  const Plan plan = make_plan(spec);
  std::vector<std::string> names;
  for (const Param& param : plan.params) names.push_back(param.name);
  CHECK(names ==
        std::vector<std::string>{"a.weight", "a.bias", "b.weight", "b.bias", "f.weight", "f.bias"});
  CHECK(plan.param_count == 2 * 20 + 10);
  // The nodes are the view, a, b, c, d, e, f.
  REQUIRE(plan.nodes.size() == 7);
  CHECK(plan.nodes[3].params == plan.nodes[1].params);
  CHECK(plan.nodes[5].params == plan.nodes[1].params);
  CHECK(plan.nodes[4].params == plan.nodes[2].params);
  for (const int index : {0, 1}) {
    CHECK(plan.params[index].node == 1);
    CHECK(plan.params[index].last_node == 5);
  }
  CHECK(plan.params[2].last_node == 4);
  CHECK(plan.params[4].last_node == 6);
  CHECK(plan.rows[4].params == 0);
  CHECK(plan.rows[4].shares == "a");
  CHECK(plan.rows[1].shares.empty());

  // A shared gradient is complete after backward of the first of its layers, which runs last.
  std::vector<std::array<std::int64_t, 3>> cuts;
  for (const GradientBucket& bucket : gradient_buckets(plan, 4)) {
    cuts.push_back({bucket.node, bucket.begin, bucket.end});
  }
  CHECK(cuts == std::vector<std::array<std::int64_t, 3>>{{6, 64, 128}, {2, 32, 64}, {1, 0, 32}});

  // The shared parameter is frozen for all layers by its one name.
  spec.train.freeze.params = {"a.*"};
  const Plan frozen = make_plan(spec);
  for (const int node : {1, 3, 5}) CHECK(frozen.nodes[node].is_frozen);
  CHECK_FALSE(frozen.values[2].needs_gradient);
  CHECK(frozen.values[3].needs_gradient);
  spec.train.freeze.params = {"a.*", "b.*"};
  for (const int value : {2, 3, 4, 5, 6}) {
    CHECK_FALSE(make_plan(spec).values[value].needs_gradient);
  }
  CHECK(make_plan(spec).rows[5].backward_flops == 0);
}

TEST_CASE("precision decides the type of activations") {
  TrainSpec spec = lenet_spec();
  CHECK(make_plan(spec).type == DType::f32);
  spec.train.precision = Precision::bf16;
  const Plan plan = make_plan(spec);
  CHECK(plan.type == DType::bf16);
  CHECK(plan.rows[2].activation_bytes == 20 * 13 * 13 * 2);
}

}  // namespace
}  // namespace dpt::testing
