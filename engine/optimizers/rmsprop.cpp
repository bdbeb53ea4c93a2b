// RMSprop, like torch.optim.RMSprop.
#include "engine/optimizers/betas.h"

namespace dpt {
namespace {

struct RmspropOptions : OptimizerOptions {
  RmspropOptions() { lr = 1e-2; }
  double alpha = 0.99;
  double eps = 1e-8;
  double momentum = 0.0;
  bool centered = false;
};

template <bool kMomentum, bool kCentered>
OptimizerSpec rmsprop_spec(const RmspropOptions& options) {
  using Formula = RmspropFormula<kMomentum, kCentered>;
  std::vector<OptimizerState> states = {{"square_avg"}};
  if (kMomentum) states.push_back({"momentum_buffer"});
  if (kCentered) states.push_back({"grad_avg"});
  return optimizer_spec<Formula>(options, std::move(states),
                                 [options](double lr, double weight_decay, std::int64_t) {
                                   typename Formula::Step step;
                                   step.lr = static_cast<float>(lr);
                                   step.weight_decay = static_cast<float>(weight_decay);
                                   step.alpha = static_cast<float>(options.alpha);
                                   step.one_minus_alpha = static_cast<float>(1.0 - options.alpha);
                                   step.eps = static_cast<float>(options.eps);
                                   step.momentum = static_cast<float>(options.momentum);
                                   return step;
                                 });
}

OptimizerSpec make_rmsprop(const Variant& variant) {
  const auto& options = variant.as<RmspropOptions>();
  if (options.momentum > 0) {
    return options.centered ? rmsprop_spec<true, true>(options)
                            : rmsprop_spec<true, false>(options);
  }
  return options.centered ? rmsprop_spec<false, true>(options)
                          : rmsprop_spec<false, false>(options);
}

}  // namespace

OptimizerKind rmsprop_optimizer() {
  using S = RmspropOptions;
  static const ObjectTable table = optimizer_table_of<S>(
      "RMSprop", "RMSprop, like torch.optim.RMSprop.", kL2Penalty,
      {field("alpha", &S::alpha, "Decay rate of the running average of the squared gradient.")
           .range(0, 1),
       eps_field<S>(), field("momentum", &S::momentum, "Momentum factor.").at_least(0),
       field("centered", &S::centered,
             "Divide by an estimate of the gradient's variance instead of its square.")});
  return {&table, &make_rmsprop};
}

}  // namespace dpt
