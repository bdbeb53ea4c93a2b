// LARS, with the defaults of You et al., "Large Batch Training of Convolutional Networks" (2017).
#include "engine/optimizers/betas.h"

namespace dpt {
namespace {

struct LarsOptions : OptimizerOptions {
  LarsOptions() {
    lr = 0.1;
    weight_decay = 5e-4;
  }
  double momentum = 0.9;
  double trust_coefficient = 1e-3;
  double eps = 1e-8;
  bool always_adapt = true;
};

OptimizerSpec make_lars(const Variant& variant) {
  const auto& options = variant.as<LarsOptions>();
  return optimizer_spec<LarsFormula>(options, {{"momentum_buffer"}},
                                     [options](double lr, double weight_decay, std::int64_t) {
                                       LarsFormula::Step step;
                                       step.lr = static_cast<float>(lr);
                                       step.weight_decay = static_cast<float>(weight_decay);
                                       step.momentum = static_cast<float>(options.momentum);
                                       step.trust_coefficient = options.trust_coefficient;
                                       step.eps = options.eps;
                                       step.adapts = options.always_adapt || weight_decay != 0;
                                       return step;
                                     });
}

}  // namespace

OptimizerKind lars_optimizer() {
  using S = LarsOptions;
  static const ObjectTable table = optimizer_table_of<S>(
      "LARS",
      "SGD with momentum, whose learning rate for each parameter adapts to the norms of the "
      "parameter and its gradient; for large batches.",
      kL2Penalty,
      {field("momentum", &S::momentum, "Momentum factor.").at_least(0),
       field("trust_coefficient", &S::trust_coefficient,
             "Trust coefficient. The learning rate of each parameter is multiplied by "
             "trust_coefficient * norm of the parameter / (norm of the gradient + weight_decay * "
             "norm of the parameter + eps).")
           .above(0),
       eps_field<S>(), always_adapt_field<S>()});
  return {&table, &make_lars};
}

}  // namespace dpt
