// Yogi, with the defaults of Zaheer et al., "Adaptive Methods for Nonconvex Optimization" (NeurIPS
// 2018).
#include <cmath>

#include "engine/optimizers/betas.h"

namespace dpt {
namespace {

struct YogiOptions : BetaOptions {
  YogiOptions() {
    lr = 1e-2;
    eps = 1e-3;
  }
  double initial_accumulator_value = 1e-6;
};

OptimizerSpec make_yogi(const Variant& variant) {
  const auto& options = variant.as<YogiOptions>();
  const auto start = static_cast<float>(options.initial_accumulator_value);
  return optimizer_spec<YogiFormula>(
      options, {{"exp_avg"}, {"exp_avg_sq", start}},
      [options](double lr, double weight_decay, std::int64_t t) {
        const double beta1 = options.betas[0], beta2 = options.betas[1];
        const auto steps = static_cast<double>(t);
        YogiFormula::Step step;
        step.weight_decay = static_cast<float>(weight_decay);
        step.one_minus_beta1 = static_cast<float>(1.0 - beta1);
        step.one_minus_beta2 = static_cast<float>(1.0 - beta2);
        step.eps = static_cast<float>(options.eps);
        step.step_size = static_cast<float>(lr / (1.0 - std::pow(beta1, steps)));
        step.inverse_sqrt_bias2 = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(beta2, steps)));
        return step;
      });
}

}  // namespace

OptimizerKind yogi_optimizer() {
  using S = YogiOptions;
  static const ObjectTable table = optimizer_table_of<S>(
      "Yogi", "Yogi: Adam whose second moment changes slowly where gradients are sparse.",
      kL2Penalty,
      {betas_field<S>(), eps_field<S>(),
       field("initial_accumulator_value", &S::initial_accumulator_value,
             "Starting value of the second moment.")
           .range(0, 1e30)},
      &check_betas_of<S>);
  return {&table, &make_yogi};
}

}  // namespace dpt
