// NAdam, like torch.optim.NAdam.
#include <cmath>

#include "engine/optimizers/betas.h"

namespace dpt {
namespace {

struct NAdamOptions : BetaOptions {
  NAdamOptions() { lr = 2e-3; }
  double momentum_decay = 4e-3;
  bool decoupled_weight_decay = false;
};

/// Returns mu_t, the momentum of update t.
double momentum_of(const NAdamOptions& options, double t) {
  return options.betas[0] * (1.0 - 0.5 * std::pow(0.96, t * options.momentum_decay));
}

/// Returns mu_1 mu_2 ... mu_t, which PyTorch keeps as a state. With q = 0.96^momentum_decay, it is
/// beta1^t (1 - q/2) (1 - q^2/2) ... (1 - q^t/2). The logarithm of factor i is -sum_k (q^i / 2)^k /
/// k. For each k, its sum over i is a geometric series.
double momentum_product(const NAdamOptions& options, double t) {
  const double log_q = options.momentum_decay * std::log(0.96);
  double log_product = 0;
  double half_power = 1;
  for (int k = 1; k <= 60; ++k) {
    half_power /= 2;
    const double sum =
        log_q == 0 ? t : std::exp(k * log_q) * std::expm1(k * t * log_q) / std::expm1(k * log_q);
    log_product -= half_power / k * sum;
  }
  return std::pow(options.betas[0], t) * std::exp(log_product);
}

OptimizerSpec make_nadam(const Variant& variant) {
  const auto& options = variant.as<NAdamOptions>();
  return optimizer_spec<NAdamFormula>(
      options, {{"exp_avg"}, {"exp_avg_sq"}},
      [options](double lr, double weight_decay, std::int64_t t) {
        const auto steps = static_cast<double>(t);
        auto step = step_of_averages<NAdamFormula::Step>(options, options.decoupled_weight_decay,
                                                         lr * weight_decay, weight_decay);
        step.inverse_sqrt_bias2 =
            static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(options.betas[1], steps)));
        const double product = momentum_product(options, steps);
        const double next = momentum_of(options, steps + 1);
        step.gradient_rate =
            static_cast<float>(lr * (1.0 - momentum_of(options, steps)) / (1.0 - product));
        step.mean_rate = static_cast<float>(lr * next / (1.0 - product * next));
        return step;
      });
}

}  // namespace

OptimizerKind nadam_optimizer() {
  using S = NAdamOptions;
  static const ObjectTable table = optimizer_table_of<S>(
      "NAdam", "Adam with Nesterov momentum, like torch.optim.NAdam.", kEitherDecay,
      {betas_field<S>(), eps_field<S>(),
       field("momentum_decay", &S::momentum_decay,
             "Rate at which the momentum rises from about half of betas[0] to betas[0].")
           .at_least(0),
       decoupled_field<S>()},
      &check_betas_of<S>);
  return {&table, &make_nadam};
}

}  // namespace dpt
