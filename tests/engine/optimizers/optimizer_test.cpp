// Field tables, descriptions and per-step scalars of the optimizers.
#include "engine/optimizers/optimizer.h"

#include <doctest/doctest.h>

#include <cmath>

#include "tests/engine/optimizers/support.h"

namespace dpt {
namespace {

OptimizerSpec make(const std::string& type,
                   std::initializer_list<std::pair<const char*, PlainValue>> values = {}) {
  const Variant variant = make_variant(optimizer_table(), type, values);
  REQUIRE(check_of(variant) == "");
  return make_optimizer(variant);
}

using Strings = std::vector<std::string>;

TEST_CASE("the table knows PyTorch's names, and hints at them for others") {
  Strings names;
  for (const ObjectTable* table : optimizer_table().alternatives) names.push_back(table->name);
  CHECK(names == Strings{"SGD", "Adam", "AdamW"});
  CHECK(optimizer_table().what == "optimizer");
  for (const auto& [other, ours] : optimizer_table().hints) {
    CHECK_NOTHROW(alternative(optimizer_table(), ours));
  }
}

TEST_CASE("defaults are torch.optim's") {
  const OptimizerSpec sgd = make("SGD");
  CHECK(sgd.lr == 1e-3);
  CHECK(sgd.desc.kind == OptimizerKind::sgd);
  CHECK(sgd.desc.momentum == 0.0F);
  CHECK(sgd.desc.dampening == 0.0F);
  CHECK_FALSE(sgd.desc.nesterov);
  CHECK(sgd.desc.weight_decay == 0.0);
  CHECK_FALSE(sgd.desc.maximize);
  CHECK(sgd.state_names.empty());

  const OptimizerSpec adam = make("Adam");
  CHECK(adam.lr == 1e-3);
  CHECK(adam.desc.kind == OptimizerKind::adam);
  CHECK(adam.desc.beta1 == 0.9);
  CHECK(adam.desc.beta2 == 0.999);
  CHECK(adam.desc.eps == 1e-8);
  CHECK(adam.desc.weight_decay == 0.0);
  CHECK_FALSE(adam.desc.amsgrad);
  CHECK(adam.state_names == Strings{"exp_avg", "exp_avg_sq"});

  const OptimizerSpec adamw = make("AdamW");
  CHECK(adamw.desc.kind == OptimizerKind::adamw);
  CHECK(adamw.desc.weight_decay == 1e-2);
  CHECK(adamw.desc.beta2 == 0.999);
}

TEST_CASE("options reach the description") {
  const OptimizerSpec sgd = make("SGD", {{"lr", 0.2},
                                         {"momentum", 0.9},
                                         {"nesterov", true},
                                         {"weight_decay", 5e-4},
                                         {"maximize", true}});
  CHECK(sgd.lr == 0.2);
  CHECK(sgd.desc.momentum == 0.9F);
  CHECK(sgd.desc.nesterov);
  CHECK(sgd.desc.weight_decay == 5e-4);
  CHECK(sgd.desc.maximize);
  CHECK(sgd.state_names == Strings{"momentum_buffer"});
  CHECK(make("SGD", {{"momentum", 0.5}, {"dampening", 0.25}}).desc.dampening == 0.25F);

  const OptimizerSpec adam = make("AdamW", {{"betas", std::vector<double>{0.5, 0.75}},
                                            {"eps", 1e-3},
                                            {"amsgrad", true},
                                            {"weight_decay", 0.125}});
  CHECK(adam.desc.beta1 == 0.5);
  CHECK(adam.desc.beta2 == 0.75);
  CHECK(adam.desc.eps == 1e-3);
  CHECK(adam.desc.amsgrad);
  CHECK(adam.desc.weight_decay == 0.125);
  CHECK(adam.state_names == Strings{"exp_avg", "exp_avg_sq", "max_exp_avg_sq"});
}

TEST_CASE("options that contradict each other are refused with both values") {
  const auto text = [](const std::string& type,
                       std::initializer_list<std::pair<const char*, PlainValue>> values) {
    return check_of(make_variant(optimizer_table(), type, values));
  };
  CHECK(text("SGD", {{"nesterov", true}}) ==
        "nesterov: true needs a momentum above 0 and a dampening of 0, found momentum: 0 and "
        "dampening: 0");
  CHECK(text("SGD", {{"nesterov", true}, {"momentum", 0.9}, {"dampening", 0.1}}) ==
        "nesterov: true needs a momentum above 0 and a dampening of 0, found momentum: 0.9 and "
        "dampening: 0.1");
  CHECK(text("Adam", {{"betas", std::vector<double>{0.9}}}) ==
        "betas: expected two numbers, such as [0.9, 0.999], found 1");
  CHECK(text("AdamW", {{"betas", std::vector<double>{0.9, 1.0}}}) ==
        "betas: expected numbers of at least 0 and below 1, found 1");
  CHECK(text("Adam", {{"betas", std::vector<double>{-0.5, 0.9}}}) ==
        "betas: expected numbers of at least 0 and below 1, found -0.5");
  CHECK(text("Adam", {{"betas", std::vector<double>{0.9, std::nan("")}}}) ==
        "betas: expected numbers of at least 0 and below 1, found nan");
}

TEST_CASE("SGD's scalars: the first update starts the momentum buffer") {
  const OptimizerSpec sgd = make("SGD", {{"momentum", 0.9}});
  StepScalars scalars;
  scalars.epoch = 5;
  scalars.inverse_count = 0.25F;
  scalars.max_norm = 3.0F;
  scalars.step_size = scalars.inverse_sqrt_bias2 = -1.0F;
  fill_optimizer_scalars(sgd, 0.1, 1, scalars);
  CHECK(scalars.lr == 0.1F);
  CHECK(scalars.step_size == 0.1F);
  CHECK(scalars.inverse_sqrt_bias2 == 1.0F);
  CHECK(scalars.first_step == 1.0F);
  // What is not the optimizer's stays as it was.
  CHECK(scalars.epoch == 5);
  CHECK(scalars.inverse_count == 0.25F);
  CHECK(scalars.max_norm == 3.0F);
  fill_optimizer_scalars(sgd, 0.05, 2, scalars);
  CHECK(scalars.lr == 0.05F);
  CHECK(scalars.first_step == 0.0F);
}

TEST_CASE("Adam's bias corrections are computed in double, as Python does") {
  const OptimizerSpec adam = make("Adam");
  StepScalars scalars;
  // Step 1: bias1 = 1 - 0.9, bias2 = 1 - 0.999.
  fill_optimizer_scalars(adam, 1e-3, 1, scalars);
  CHECK(scalars.step_size == static_cast<float>(1e-3 / (1 - 0.9)));
  CHECK(scalars.inverse_sqrt_bias2 == static_cast<float>(1 / std::sqrt(1 - 0.999)));
  // Step 10, by hand: 0.9^10 = 0.3486784401, 0.999^10 = 0.990044880209748.
  fill_optimizer_scalars(adam, 1e-3, 10, scalars);
  CHECK(scalars.step_size == static_cast<float>(1e-3 / (1 - 0.3486784401)));
  CHECK(scalars.inverse_sqrt_bias2 == static_cast<float>(1 / std::sqrt(1 - 0.990044880209748)));
  // With float arithmetic 1 - 0.999^1 would already be off in its fifth digit.
  CHECK(1.0 / (static_cast<double>(1.0F - 0.999F)) != doctest::Approx(1000).epsilon(1e-7));
  // Far along, both corrections vanish.
  fill_optimizer_scalars(adam, 1e-3, 1'000'000'000, scalars);
  CHECK(scalars.step_size == 1e-3F);
  CHECK(scalars.inverse_sqrt_bias2 == 1.0F);
  CHECK(scalars.lr == 1e-3F);
}

}  // namespace
}  // namespace dpt
