// Field tables, states and per-step constants of the optimizers.
#include "engine/optimizers/optimizer.h"

#include <doctest/doctest.h>

#include <cmath>

#include "kernels/common/optimizers/formulas.h"
#include "tests/engine/optimizers/support.h"

namespace dpt {
namespace {

OptimizerSpec make(const std::string& type,
                   std::initializer_list<std::pair<const char*, PlainValue>> values = {}) {
  const Variant variant = make_variant(optimizer_kinds().table(), type, values);
  REQUIRE(check_of(variant) == "");
  return make_optimizer(variant);
}

using Strings = std::vector<std::string>;

TEST_CASE("the table knows PyTorch's names, and hints at them for others") {
  Strings names;
  for (const OptimizerKind& kind : optimizer_kinds()) names.push_back(kind.table->name);
  CHECK(names == Strings{"SGD", "Adam", "AdamW", "NAdam", "RAdam", "RMSprop", "Adagrad", "Adadelta",
                         "Yogi", "Lion", "LARS", "LAMB"});
  CHECK(optimizer_kinds().table().what == "optimizer");
  for (const auto& [other, ours] : optimizer_kinds().table().hints) {
    CHECK_NOTHROW(alternative(optimizer_kinds().table(), ours));
  }
}

/// Returns the constants of update `t` in the formula's own type.
template <class Formula>
typename Formula::Step step_of(const OptimizerSpec& spec, double lr, std::int64_t t) {
  REQUIRE(spec.formula == formula_index<Formula>());
  const UpdateStep block = spec.update_step(lr, spec.weight_decay, t);
  return reinterpret_cast<const FormulaStep<Formula>*>(&block)->step;
}

/// Returns the default of each field, except those that all optimizers share.
std::string defaults_of(const std::string& type) {
  const ObjectTable& table = alternative(optimizer_kinds().table(), type);
  const std::shared_ptr<void> made = table.make();
  std::string text;
  for (const Field& field : table.fields) {
    if (field.name == "maximize" || field.name == "groups") continue;
    const PlainValue value = field.get(made.get());
    text += (text.empty() ? "" : " ") + field.name + " ";
    if (const auto* flag = std::get_if<bool>(&value)) {
      text += *flag ? "true" : "false";
    } else if (const auto* numbers = std::get_if<std::vector<double>>(&value)) {
      text += fmt::format("{:g}/{:g}", numbers->at(0), numbers->at(1));
    } else {
      text += fmt::format("{:g}", std::get<double>(value));
    }
  }
  return text;
}

TEST_CASE("defaults are torch.optim's, or the paper's") {
  CHECK(defaults_of("SGD") == "lr 0.001 momentum 0 dampening 0 nesterov false weight_decay 0");
  const std::string adam = "lr 0.001 betas 0.9/0.999 eps 1e-08 amsgrad false weight_decay ";
  CHECK(defaults_of("Adam") == adam + "0");
  CHECK(defaults_of("AdamW") == adam + "0.01");
  CHECK(defaults_of("NAdam") ==
        "lr 0.002 betas 0.9/0.999 eps 1e-08 momentum_decay 0.004 decoupled_weight_decay false "
        "weight_decay 0");
  CHECK(defaults_of("RAdam") ==
        "lr 0.001 betas 0.9/0.999 eps 1e-08 decoupled_weight_decay false weight_decay 0");
  CHECK(defaults_of("RMSprop") ==
        "lr 0.01 alpha 0.99 eps 1e-08 momentum 0 centered false weight_decay 0");
  CHECK(defaults_of("Adagrad") ==
        "lr 0.01 lr_decay 0 initial_accumulator_value 0 eps 1e-10 weight_decay 0");
  CHECK(defaults_of("Adadelta") == "lr 1 rho 0.9 eps 1e-06 weight_decay 0");
  CHECK(defaults_of("Yogi") ==
        "lr 0.01 betas 0.9/0.999 eps 0.001 initial_accumulator_value 1e-06 weight_decay 0");
  CHECK(defaults_of("Lion") == "lr 0.0001 betas 0.9/0.99 weight_decay 0");
  CHECK(defaults_of("LARS") ==
        "lr 0.1 momentum 0.9 trust_coefficient 0.001 eps 1e-08 always_adapt true weight_decay "
        "0.0005");
  CHECK(defaults_of("LAMB") ==
        "lr 0.001 betas 0.9/0.999 eps 1e-06 always_adapt true weight_decay 0.01");
}

TEST_CASE("states are named as PyTorch names them, and start where the options say") {
  CHECK(make("SGD").state_names().empty());
  CHECK(make("SGD", {{"momentum", 0.9}}).state_names() == Strings{"momentum_buffer"});
  CHECK(make("LARS").state_names() == Strings{"momentum_buffer"});
  for (const char* type : {"Adam", "AdamW", "NAdam", "RAdam", "Yogi", "LAMB"}) {
    CHECK(make(type).state_names() == Strings{"exp_avg", "exp_avg_sq"});
  }
  CHECK(make("AdamW", {{"amsgrad", true}}).state_names() ==
        Strings{"exp_avg", "exp_avg_sq", "max_exp_avg_sq"});
  CHECK(make("RMSprop").state_names() == Strings{"square_avg"});
  CHECK(make("RMSprop", {{"centered", true}}).state_names() == Strings{"square_avg", "grad_avg"});
  CHECK(make("RMSprop", {{"centered", true}, {"momentum", 0.5}}).state_names() ==
        Strings{"square_avg", "momentum_buffer", "grad_avg"});
  CHECK(make("Adagrad").state_names() == Strings{"sum"});
  CHECK(make("Adadelta").state_names() == Strings{"square_avg", "acc_delta"});
  CHECK(make("Lion").state_names() == Strings{"exp_avg"});
  CHECK(make("Adagrad", {{"initial_accumulator_value", 0.5}}).states[0].start == 0.5F);
  const OptimizerSpec yogi = make("Yogi");
  CHECK(yogi.states[0].start == 0.0F);
  CHECK(yogi.states[1].start == 1e-6F);
}

TEST_CASE("options that contradict each other are refused with both values") {
  const auto text = [](const std::string& type,
                       std::initializer_list<std::pair<const char*, PlainValue>> values) {
    return check_of(make_variant(optimizer_kinds().table(), type, values));
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

TEST_CASE("SGD's step: the first update starts the momentum buffer") {
  using Formula = SgdFormula<true>;
  const OptimizerSpec sgd = make("SGD", {{"momentum", 0.9}});
  CHECK(step_of<Formula>(sgd, 0.1, 1).is_first);
  CHECK(step_of<Formula>(sgd, 0.1, 1).lr == 0.1F);
  CHECK_FALSE(step_of<Formula>(sgd, 0.05, 2).is_first);
  CHECK(step_of<Formula>(sgd, 0.05, 2).lr == 0.05F);
}

TEST_CASE("Adam's bias corrections are computed in double, as Python does") {
  using Formula = AdamFormula<false>;
  const OptimizerSpec adam = make("Adam");
  // Step 1: bias1 = 1 - 0.9, bias2 = 1 - 0.999.
  Formula::Step step = step_of<Formula>(adam, 1e-3, 1);
  CHECK(step.step_size == static_cast<float>(1e-3 / (1 - 0.9)));
  CHECK(step.inverse_sqrt_bias2 == static_cast<float>(1 / std::sqrt(1 - 0.999)));
  // Step 10, by hand: 0.9^10 = 0.3486784401, 0.999^10 = 0.990044880209748.
  step = step_of<Formula>(adam, 1e-3, 10);
  CHECK(step.step_size == static_cast<float>(1e-3 / (1 - 0.3486784401)));
  CHECK(step.inverse_sqrt_bias2 == static_cast<float>(1 / std::sqrt(1 - 0.990044880209748)));
  // With float arithmetic 1 - 0.999^1 would be off in the fifth digit.
  CHECK(1.0 / (static_cast<double>(1.0F - 0.999F)) != doctest::Approx(1000).epsilon(1e-7));
  // After many updates, both corrections vanish.
  step = step_of<Formula>(adam, 1e-3, 1'000'000'000);
  CHECK(step.step_size == 1e-3F);
  CHECK(step.inverse_sqrt_bias2 == 1.0F);
}

TEST_CASE("NAdam's product of momenta is that of all updates so far") {
  // PyTorch multiplies its state by mu_t in each update; a resumed run has only the closed form.
  for (const double decay : {0.004, 0.0, 0.5}) {
    const OptimizerSpec nadam =
        make("NAdam", {{"momentum_decay", decay}, {"betas", std::vector<double>{0.99, 0.999}}});
    const auto mu = [&](std::int64_t t) {
      return 0.99 * (1 - 0.5 * std::pow(0.96, static_cast<double>(t) * decay));
    };
    double product = 1;
    for (std::int64_t t = 1; t <= 300; ++t) {
      product *= mu(t);
      const NAdamFormula::Step step = step_of<NAdamFormula>(nadam, 1, t);
      CHECK(static_cast<double>(step.gradient_rate) ==
            doctest::Approx((1 - mu(t)) / (1 - product)).epsilon(1e-6));
      CHECK(static_cast<double>(step.mean_rate) ==
            doctest::Approx(mu(t + 1) / (1 - product * mu(t + 1))).epsilon(1e-6));
    }
    // Nothing overflows after many updates.
    CHECK(std::isfinite(step_of<NAdamFormula>(nadam, 1, 1'000'000'000).mean_rate));
  }
}

TEST_CASE("RAdam is adaptive from the sixth update on") {
  const OptimizerSpec radam = make("RAdam");
  CHECK_FALSE(step_of<RAdamFormula>(radam, 1e-3, 5).is_adaptive);
  CHECK(step_of<RAdamFormula>(radam, 1e-3, 6).is_adaptive);
  // With a short memory rectification never starts: rho_inf = 2 / (1 - 0.6) - 1 = 4.
  const OptimizerSpec never = make("RAdam", {{"betas", std::vector<double>{0.9, 0.6}}});
  CHECK_FALSE(step_of<RAdamFormula>(never, 1e-3, 1'000'000).is_adaptive);
}

}  // namespace
}  // namespace dpt
