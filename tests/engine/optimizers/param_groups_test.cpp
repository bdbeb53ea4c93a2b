// Parameter groups: membership, the ranges, and the constants of each group.
#include "engine/optimizers/param_groups.h"

#include <doctest/doctest.h>

#include "kernels/common/optimizers/formulas.h"
#include "tests/engine/optimizers/support.h"

namespace dpt {
namespace {

/// Returns weight and bias of conv1, bn and fc: 20 floats each, padded to 32.
std::vector<ParamPlace> places() {
  std::vector<ParamPlace> all;
  for (const char* layer : {"conv1", "bn", "fc"}) {
    for (const char* suffix : {"weight", "bias"}) {
      const auto offset = static_cast<std::int64_t>(32 * all.size());
      all.push_back({std::string(layer) + "." + suffix, offset, 20, false});
    }
  }
  return all;
}

OptimizerSpec sgd(std::vector<ParamGroupSpec> groups) {
  OptimizerSpec spec = make_optimizer(make_variant(optimizer_kinds().table(), "SGD"));
  spec.weight_decay = 0.25;
  spec.groups = std::move(groups);
  return spec;
}

using Ranges = std::vector<UpdateRange>;

TEST_CASE("without groups there is one range over all parameters") {
  const UpdatePlan update = plan_update(sgd({}), places());
  CHECK(update.ranges == Ranges{{0, 192, 0}});
  CHECK(update.frozen.empty());
  REQUIRE(update.groups.size() == 1);
  CHECK(update.groups[0].tensors == 6);
  CHECK(update.groups[0].elements == 120);
  CHECK(groups_text(update).empty());
}

TEST_CASE("the first group that matches wins, and neighbours that are alike share a range") {
  const UpdatePlan update = plan_update(
      sgd({{{"*.bias", "bn.*"}, 0.0, 1.0, {}}, {{"fc.*", "bn.weight"}, std::nullopt, 2.0, {}}}),
      places());
  CHECK(update.ranges == Ranges{{0, 32, 0}, {32, 96, 1}, {128, 32, 2}, {160, 32, 1}});
  CHECK(update.groups[1].tensors == 4);
  CHECK(update.groups[2].tensors == 1);
  CHECK(groups_text(update) ==
        "Parameter groups:\n"
        "  *.bias, bn.*: 4 tensors, 80 elements, learning rate x 1, weight decay 0\n"
        "  fc.*, bn.weight: 1 tensor, 20 elements, learning rate x 2, weight decay 0.25\n"
        "  all others: 1 tensor, 20 elements, learning rate x 1, weight decay 0.25\n");
}

TEST_CASE("groups with equal settings share their ranges") {
  const UpdatePlan update = plan_update(
      sgd({{{"conv1.*"}, 0.25, 1.0, {}}, {{"bn.*"}, 0.0, 3.0, {}}, {{"fc.*"}, 0.0, 3.0, {}}}),
      places());
  CHECK(update.ranges == Ranges{{0, 64, 0}, {64, 128, 2}});
}

TEST_CASE("a layer-wise optimizer has a range for each parameter, without its padding") {
  OptimizerSpec spec = sgd({{{"bn.*"}, 0.0, 1.0, {}}});
  spec.is_layerwise = true;
  CHECK(plan_update(spec, places()).ranges ==
        Ranges{{0, 20, 0}, {32, 20, 0}, {64, 20, 1}, {96, 20, 1}, {128, 20, 0}, {160, 20, 0}});
}

TEST_CASE("frozen parameters are in no range and in no group") {
  std::vector<ParamPlace> params = places();
  params[0].is_frozen = params[1].is_frozen = params[4].is_frozen = true;
  const UpdatePlan update = plan_update(sgd({{{"*.bias"}, 0.0, 1.0, {}}}), params);
  CHECK(update.frozen == Ranges{{0, 64, 0}, {128, 32, 0}});
  CHECK(update.ranges == Ranges{{64, 32, 0}, {96, 32, 1}, {160, 32, 1}});
  CHECK(update.groups[0].tensors == 1);
  CHECK(update.groups[1].tensors == 2);
}

TEST_CASE("each group's step has its learning rate and weight decay") {
  const OptimizerSpec spec = sgd({{{"*.bias"}, 0.0, 2.0, {}}, {{"fc.*"}, std::nullopt, 0.5, {}}});
  const UpdatePlan update = plan_update(spec, places());
  std::vector<UpdateStep> steps(3);
  update.fill_steps(spec, 0.5, 1, steps);
  const auto step = [&](std::size_t g) {
    return reinterpret_cast<const FormulaStep<SgdFormula<false>>*>(&steps[g])->step;
  };
  CHECK(step(0).lr == 0.5F);
  CHECK(step(0).weight_decay == 0.25F);
  CHECK(step(1).lr == 1.0F);
  CHECK(step(1).weight_decay == 0.0F);
  CHECK(step(2).lr == 0.25F);
  CHECK(step(2).weight_decay == 0.25F);
}

TEST_CASE("all patterns that match nothing are reported, with their places") {
  const std::string text = [] {
    try {
      plan_update(sgd({{{"*.bias", "conv2.*"}, 0.0, 1.0, {"a.yaml", 3, 5}},
                       {{"fcc.*"}, 0.0, 1.0, {"a.yaml", 4, 5}}}),
                  places());
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::usage);
      return std::string(error.what());
    }
    return std::string("no error");
  }();
  CHECK(text ==
        "a.yaml:3:5: optimizer.groups: match: 'conv2.*' matches no parameter; did you mean "
        "'conv1.*'?\n"
        "a.yaml:4:5: optimizer.groups: match: 'fcc.*' matches no parameter; did you mean 'fc.*'?");
}

}  // namespace
}  // namespace dpt
