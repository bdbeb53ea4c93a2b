// Lion, with the defaults of Chen et al., "Symbolic Discovery of Optimization Algorithms" (2023).
#include "engine/optimizers/betas.h"

namespace dpt {
namespace {

struct LionOptions : OptimizerOptions {
  LionOptions() { lr = 1e-4; }
  std::vector<double> betas = {0.9, 0.99};
};

OptimizerSpec make_lion(const Variant& variant) {
  const auto& options = variant.as<LionOptions>();
  return optimizer_spec<LionFormula>(
      options, {{"exp_avg"}}, [options](double lr, double weight_decay, std::int64_t) {
        LionFormula::Step step;
        step.lr = static_cast<float>(lr);
        step.shrink = static_cast<float>(1.0 - lr * weight_decay);
        step.one_minus_beta1 = static_cast<float>(1.0 - options.betas[0]);
        step.one_minus_beta2 = static_cast<float>(1.0 - options.betas[1]);
        return step;
      });
}

}  // namespace

OptimizerKind lion_optimizer() {
  using S = LionOptions;
  static const ObjectTable table = optimizer_table_of<S>(
      "Lion", "Lion: the sign of a running average of the gradient.", kDecoupledDecay,
      {field("betas", &S::betas,
             "Decay rates of the running average: the one used in the update, and the one stored "
             "for the next.")
           .items(2, 2)},
      &check_betas_of<S>);
  return {&table, &make_lion};
}

}  // namespace dpt
