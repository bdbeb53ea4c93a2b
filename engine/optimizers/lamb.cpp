// LAMB, with the defaults of You et al., "Large Batch Optimization for Deep Learning: Training BERT
// in 76 minutes" (ICLR 2020).
#include <cmath>

#include "engine/optimizers/betas.h"

namespace dpt {
namespace {

struct LambOptions : BetaOptions {
  LambOptions() {
    eps = 1e-6;
    weight_decay = 1e-2;
  }
  bool always_adapt = true;
};

OptimizerSpec make_lamb(const Variant& variant) {
  const auto& options = variant.as<LambOptions>();
  return optimizer_spec<LambFormula>(
      options, {{"exp_avg"}, {"exp_avg_sq"}},
      [options](double lr, double weight_decay, std::int64_t t) {
        const double beta1 = options.betas[0], beta2 = options.betas[1];
        const auto steps = static_cast<double>(t);
        LambFormula::Step step;
        step.lr = static_cast<float>(lr);
        step.weight_decay = static_cast<float>(weight_decay);
        step.one_minus_beta1 = static_cast<float>(1.0 - beta1);
        step.beta2 = static_cast<float>(beta2);
        step.one_minus_beta2 = static_cast<float>(1.0 - beta2);
        step.eps = static_cast<float>(options.eps);
        step.inverse_bias1 = static_cast<float>(1.0 / (1.0 - std::pow(beta1, steps)));
        step.inverse_sqrt_bias2 = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(beta2, steps)));
        step.adapts = options.always_adapt || weight_decay != 0;
        return step;
      });
}

}  // namespace

OptimizerKind lamb_optimizer() {
  using S = LambOptions;
  static const ObjectTable table = optimizer_table_of<S>(
      "LAMB",
      "AdamW whose update of each parameter is scaled to the parameter's norm, for large batches.",
      "Decoupled weight decay: weight_decay times the parameter is added to the update before the "
      "update is scaled.",
      {betas_field<S>(), eps_field<S>(), always_adapt_field<S>()}, &check_betas_of<S>);
  return {&table, &make_lamb};
}

}  // namespace dpt
