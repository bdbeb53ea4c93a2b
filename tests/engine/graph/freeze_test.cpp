// train.freeze in the Plan: the frozen parameters, and the places where no gradient is needed.
#include <array>

#include "engine/graph/make_plan.h"
#include "engine/graph/memory.h"
#include "engine/graph/memory_schedule.h"
#include "engine/graph/param_places.h"
#include "engine/graph/plan.h"
#include "engine/graph/summary.h"
#include "tests/support/model.h"

namespace dpt::testing {
namespace {

Plan frozen_lenet(std::vector<std::string> patterns) {
  TrainSpec spec = lenet_spec();
  spec.train.freeze.params = std::move(patterns);
  return make_plan(spec);
}

std::vector<bool> needing_gradients(const Plan& plan) {
  std::vector<bool> all;
  for (const Value& value : plan.values) all.push_back(value.needs_gradient);
  return all;
}

TEST_CASE("no gradient is needed before the first layer that is trained") {
  // The values of the plan: the image and the outputs of conv1, conv2, the view, fc1 and fc2.
  using Flags = std::vector<bool>;
  CHECK(needing_gradients(frozen_lenet({})) == Flags{false, true, true, true, true, true});
  const Plan front = frozen_lenet({"conv?.*"});
  CHECK(needing_gradients(front) == Flags{false, false, false, false, true, true});
  CHECK_FALSE(front.nodes[3].input_gradient);
  CHECK(front.nodes[4].input_gradient);
  CHECK(front.rows[0].backward_flops == 0);
  CHECK(front.rows[3].backward_flops == 0);
  // fc1 computes only the gradient of its weights, which costs as much as forward.
  CHECK(front.rows[7].backward_flops == front.rows[7].forward_flops);
  // A trained bias is enough to need a gradient, and a frozen layer in the middle passes gradients
  // on.
  CHECK(needing_gradients(frozen_lenet({"conv1.weight"})) == needing_gradients(frozen_lenet({})));
  CHECK(needing_gradients(frozen_lenet({"conv2.*", "fc1.*"})) ==
        needing_gradients(frozen_lenet({})));
}

TEST_CASE("less memory where nothing is kept for backward") {
  CHECK(estimate_memory(frozen_lenet({"conv*"}), 32, 0).activations <
        estimate_memory(frozen_lenet({}), 32, 0).activations);
}

TEST_CASE("frozen layers before the first trained one have no gradient and no optimizer state") {
  const auto begin = [](std::vector<std::string> patterns) {
    return gradient_begin(frozen_lenet(std::move(patterns)));
  };
  const Plan plan = frozen_lenet({"conv*"});
  CHECK(begin({"conv*"}) == plan.params[4].offset);
  CHECK(plan.params[4].name == "fc1.weight");
  // conv2's bias is trained, and its weight precedes it in the buffer.
  CHECK(begin({"conv1.*", "conv2.weight"}) == plan.params[2].offset);
  for (const auto& patterns :
       {std::vector<std::string>{}, {"conv1.weight"}, {"conv2.*"}, {"fc*"}}) {
    CHECK(begin(patterns) == 0);
  }
  const MemoryEstimate all = estimate_memory(frozen_lenet({}), 32, 2);
  const MemoryEstimate some = estimate_memory(plan, 32, 2);
  const std::int64_t bytes = plan.params[4].offset * 4;
  CHECK(some.params == all.params);
  CHECK(some.grads == all.grads - bytes);
  CHECK(some.optimizer == all.optimizer - 2 * bytes);
  // The average of the weights (train.ema) covers frozen parameters too.
  TrainSpec spec = lenet_spec();
  spec.train.freeze.params = {"conv*"};
  const std::string without = summary_json(spec, plan, 1, 2);
  spec.train.ema = EmaSpec();
  CHECK(without.find(fmt::format("\"optimizer\": {}", some.optimizer)) != std::string::npos);
  CHECK(summary_json(spec, plan, 1, 2)
            .find(fmt::format("\"optimizer\": {}", some.optimizer + bytes)) != std::string::npos);
}

TEST_CASE("buckets end where gradients do") {
  TrainSpec spec = ModelSpecBuilder({8, 1, 1})
                       .add("Flatten")
                       .linear("a", 4)
                       .linear("b", 4)
                       .linear("c", 2)
                       .spec();
  spec.train.freeze.params = {"a.*"};
  const Plan plan = make_plan(spec);
  // Nodes 1 to 3 have 48, 32 and 32 floats, and metrics come after them.
  using Cuts = std::vector<std::array<std::int64_t, 3>>;
  Cuts cuts;
  for (const GradientBucket& bucket : gradient_buckets(plan, 4)) {
    cuts.push_back({bucket.node, bucket.begin, bucket.end});
  }
  CHECK(cuts == Cuts{{3, 80, 144}, {2, 48, 80}});
}

TEST_CASE("train.freeze with except: all others, or those of a list") {
  const auto frozen = [](std::vector<std::string> params, std::vector<std::string> except) {
    TrainSpec spec = lenet_spec();
    spec.train.freeze = {std::move(params), std::move(except)};
    std::vector<std::string> names;
    for (const Param& param : make_plan(spec).params) {
      if (param.is_frozen) names.push_back(param.name);
    }
    return names;
  };
  using Names = std::vector<std::string>;
  CHECK(frozen({}, {}).empty());
  CHECK(frozen({}, {"fc*"}) == Names{"conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias"});
  CHECK(frozen({"conv*", "fc1.*"}, {"*.bias"}) ==
        Names{"conv1.weight", "conv2.weight", "fc1.weight"});
  const auto error = [&](const std::vector<std::string>& params,
                         const std::vector<std::string>& except) {
    return error_text([&] { frozen(params, except); });
  };
  CHECK(error({}, {"fc9.*"}).starts_with("train.freeze.except: 'fc9.*' matches no parameter; did"));
  CHECK(error({"conv9.*"}, {"fc1.*"})
            .starts_with("train.freeze.params: 'conv9.*' matches no parameter; did"));
  CHECK(error({"conv1.*"}, {"conv*"}) ==
        "train.freeze.except matches everything that would be frozen: remove train.freeze, or list "
        "fewer patterns");
}

TEST_CASE("mistakes in train.freeze") {
  const auto error = [](std::vector<std::string> patterns) {
    return error_text([&] { frozen_lenet(std::move(patterns)); });
  };
  CHECK(error({"conv1.*", "conv3.*"}) ==
        "train.freeze: 'conv3.*' matches no parameter; did you mean 'conv1.*'?");
  CHECK(error({"*"}) == "train.freeze: all parameters are frozen, so there is nothing to train");
  TrainSpec spec = lenet_spec();
  spec.train.freeze.params = {"conv1.*", "conv3.*"};
  spec.origins["train.freeze.params.1"] = {"net.yaml", 30, 22};
  CHECK(error_text([&] { make_plan(spec); }) ==
        "net.yaml:30:22: train.freeze: 'conv3.*' matches no parameter; did you mean 'conv1.*'?");
}

TEST_CASE("the summary shows the frozen layers") {
  TrainSpec spec = lenet_spec();
  CHECK(summary_text(spec, make_plan(spec), 1).find("frozen") == std::string::npos);
  spec.train.freeze.params = {"conv*"};
  const std::string text = summary_text(spec, make_plan(spec), 1);
  CHECK(text.find("25,250 of the parameters are frozen (4 of 8 tensors).\n") != std::string::npos);
  CHECK(summary_json(spec, make_plan(spec), 1).find("\"frozen\": true") != std::string::npos);
}

}  // namespace
}  // namespace dpt::testing
