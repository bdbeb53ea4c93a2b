// RAdam, like torch.optim.RAdam.
#include <cmath>

#include "engine/optimizers/betas.h"

namespace dpt {
namespace {

struct RAdamOptions : BetaOptions {
  bool decoupled_weight_decay = false;
};

/// Returns the rectification term of update t, or 0 if the variance of the adaptive learning rate
/// is not tractable.
double rectification(double beta2, double t) {
  const double power = std::pow(beta2, t);
  const double most = 2.0 / (1.0 - beta2) - 1.0;
  const double length = most - 2.0 * t * power / (1.0 - power);
  if (!(length > 5.0)) return 0;
  return std::sqrt((length - 4.0) * (length - 2.0) * most / ((most - 4.0) * (most - 2.0) * length));
}

OptimizerSpec make_radam(const Variant& variant) {
  const auto& options = variant.as<RAdamOptions>();
  return optimizer_spec<RAdamFormula>(
      options, {{"exp_avg"}, {"exp_avg_sq"}},
      [options](double lr, double weight_decay, std::int64_t t) {
        const double beta1 = options.betas[0], beta2 = options.betas[1];
        const auto steps = static_cast<double>(t);
        auto step = step_of_averages<RAdamFormula::Step>(options, options.decoupled_weight_decay,
                                                         lr * weight_decay, weight_decay);
        double size = lr / (1.0 - std::pow(beta1, steps));
        const double factor = rectification(beta2, steps);
        step.is_adaptive = factor > 0;
        if (step.is_adaptive) size *= factor * std::sqrt(1.0 - std::pow(beta2, steps));
        step.step_size = static_cast<float>(size);
        return step;
      });
}

}  // namespace

OptimizerKind radam_optimizer() {
  using S = RAdamOptions;
  static const ObjectTable table = optimizer_table_of<S>(
      "RAdam", "Adam with a rectified adaptive learning rate, like torch.optim.RAdam.",
      kEitherDecay, {betas_field<S>(), eps_field<S>(), decoupled_field<S>()}, &check_betas_of<S>);
  return {&table, &make_radam};
}

}  // namespace dpt
