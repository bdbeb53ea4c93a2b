// Evaluation with folded batch norms: it folds the right norms, and gives the same results as the
// training plan.
#include "engine/graph/evaluation_plan.h"

#include <cmath>
#include <string>
#include <vector>

#include "engine/graph/make_plan.h"
#include "kernels/devices.h"
#include "tests/engine/graph/net.h"
#include "tests/support/backends.h"
#include "tests/support/close.h"

namespace dpt::testing {
namespace {

/// Returns a net of convolutions with every kind of layer that may follow a batch norm.
TrainSpec convolutional() {
  return ModelSpecBuilder({3, 12, 10})
      .add("Conv2d", {{"out_channels", integer(6)}, {"kernel_size", square(3)}, {"bias", false}},
           "conv1")
      .add("BatchNorm2d", {}, "norm1")
      .add("ReLU")
      .add("MaxPool2d", {{"kernel_size", square(2)}}, "pool")
      .add("Conv2d",
           {{"out_channels", integer(6)},
            {"kernel_size", square(3)},
            {"padding", square(1)},
            {"groups", integer(2)}},
           "conv2")
      .add("BatchNorm2d", {{"affine", false}, {"eps", 1e-2}}, "norm2")
      .add("SiLU", {}, "silu")
      .conv("conv3", 8, 1)
      .add("BatchNorm2d", {}, "norm3")
      .add("Flatten", {}, "flat")
      .linear("fc1", 7)
      .add("BatchNorm1d", {}, "norm4")
      .add("ReLU")
      .linear("fc2", 3)
      .spec();
}

/// Returns a net whose batch norms cannot be folded: a ReLU lies between convolution and norm, two
/// layers read the convolution, the norm keeps no running statistics, or it does not read a layer
/// with weights.
TrainSpec unfoldable() {
  return ModelSpecBuilder({3, 8, 8})
      .add("BatchNorm2d")
      .conv("conv1", 4, 3)
      .add("ReLU")
      .add("BatchNorm2d")
      .conv("conv2", 4, 1)
      .add("BatchNorm2d", {{"track_running_stats", false}})
      .conv("conv3", 4, 1)
      .add("BatchNorm2d", {}, "norm")
      .add("Add", {}, "sum", {"conv3", "norm"})
      .add("Flatten")
      .linear("fc", 3)
      .spec();
}

std::vector<std::string> names_of_nodes(const Plan& plan) {
  std::vector<std::string> names;
  for (const Node& node : plan.nodes) names.push_back(node.name);
  return names;
}

/// Returns starting values, except for batch norms, whose weights and statistics differ from
/// channel to channel.
std::vector<float> params_of(const Plan& plan) {
  std::vector<float> params = start_params(plan);
  for (const Param& param : plan.params) {
    const std::string& suffix = param.spec.suffix;
    const bool of_norm = param.spec.init.kind == InitKind::constant;
    for (std::int64_t i = 0; of_norm && i < param.count; ++i) {
      float& value = params[param.offset + i];
      const auto x = static_cast<float>(std::sin(static_cast<double>(3 * i + param.offset)));
      value = suffix == "running_var" ? 0.5F + x * x : suffix == "weight" ? 1 + 0.5F * x : 0.3F * x;
    }
  }
  return params;
}

EvalResult evaluate(Backend& backend, const Plan& plan, const std::vector<float>& params,
                    const TestBatch& batch, const EvaluationPlan* folded = nullptr) {
  NetRunner runner(backend, plan, params, batch, false);
  if (!folded) return runner.evaluate();
  const OnDevice<float> memory(
      backend, std::vector<float>(static_cast<std::size_t>(folded->folded_floats), NAN));
  const OnDevice<float> flat(backend, params);
  backend.fold_norms(folded->folds, flat.ptr(), memory.ptr());
  return runner.evaluate(memory.ptr());
}

TEST_CASE("batch norms are folded into the layer that only they read, with what follows") {
  const Plan plan = make_plan(convolutional());
  const EvaluationPlan evaluation = make_evaluation_plan(plan);
  CHECK(names_of_nodes(plan) == std::vector<std::string>{"conv1", "norm1", "pool", "conv2", "norm2",
                                                         "silu", "conv3", "norm3", "flat", "fc1",
                                                         "norm4", "fc2"});
  CHECK(names_of_nodes(evaluation.plan) ==
        std::vector<std::string>{"conv1", "conv2", "silu", "conv3", "flat", "fc1", "fc2"});
  CHECK(evaluation.folds.size() == 4);
  CHECK(evaluation.plan.nodes[0].source_layers == std::vector<int>{0, 1, 2, 3});
  // The training plan's parameters keep their positions.
  REQUIRE(evaluation.plan.params.size() == plan.params.size() + 8);
  for (std::size_t i = 0; i < evaluation.plan.params.size(); ++i) {
    CHECK(evaluation.plan.params[i].is_folded == (i >= plan.params.size()));
  }
}

TEST_CASE("batch norms that cannot be folded stay as they are") {
  for (const TrainSpec& spec : {unfoldable(), small_lenet(), joined_net()}) {
    const Plan plan = make_plan(spec);
    const EvaluationPlan evaluation = make_evaluation_plan(plan);
    CHECK(evaluation.folds.empty());
    CHECK(evaluation.folded_floats == 0);
    CHECK(names_of_nodes(evaluation.plan) == names_of_nodes(plan));
  }
}

TEST_CASE("an evaluation with folded batch norms gives what one without them does") {
  for (const TrainSpec& spec : {convolutional(), normalised_net(), unfoldable()}) {
    const Plan plan = make_plan(spec);
    const EvaluationPlan evaluation = make_evaluation_plan(plan);
    const std::vector<float> params = params_of(plan);
    const TestBatch batch(plan, 5);
    for (const std::string& name : backend_names()) {
      INFO(name);
      const std::unique_ptr<Backend> backend = make_backend(parse_device(name));
      const EvalResult want = evaluate(*backend, plan, params, batch);
      const EvalResult found = evaluate(*backend, evaluation.plan, params, batch, &evaluation);
      check_close("loss", found.loss, to_double(want.loss), 1e-6);
      CHECK(found.prediction == want.prediction);
      CHECK(found.metrics.sums[0].value() == want.metrics.sums[0].value());
    }
  }
}

}  // namespace
}  // namespace dpt::testing
