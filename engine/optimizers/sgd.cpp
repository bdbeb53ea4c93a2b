// SGD, like torch.optim.SGD: momentum, dampening, Nesterov momentum, weight decay as an L2 term.
#include "engine/optimizers/kinds.h"

namespace dpt {
namespace {

struct SgdOptions : OptimizerOptions {
  double momentum = 0.0;
  double dampening = 0.0;
  bool nesterov = false;
};

std::string check_sgd(const SgdOptions& options) {
  if (options.nesterov && (options.momentum == 0.0 || options.dampening != 0.0)) {
    return fmt::format(
        "nesterov: true needs a momentum above 0 and a dampening of 0, found momentum: {} and "
        "dampening: {}",
        options.momentum, options.dampening);
  }
  return {};
}

template <bool kMomentum>
OptimizerSpec sgd_spec(const SgdOptions& options, std::vector<OptimizerState> states) {
  using Formula = SgdFormula<kMomentum>;
  return optimizer_spec<Formula>(
      options, std::move(states), [options](double lr, double weight_decay, std::int64_t t) {
        typename Formula::Step step;
        step.lr = static_cast<float>(lr);
        step.weight_decay = static_cast<float>(weight_decay);
        step.momentum = step.keep = static_cast<float>(options.momentum);
        const auto dampening = static_cast<float>(options.dampening);
        step.gain = static_cast<float>(1.0 - static_cast<double>(dampening));
        step.nesterov = options.nesterov;
        step.is_first = t == 1;
        return step;
      });
}

OptimizerSpec make_sgd(const Variant& variant) {
  const auto& options = variant.as<SgdOptions>();
  if (options.momentum == 0.0) return sgd_spec<false>(options, {});
  return sgd_spec<true>(options, {{"momentum_buffer"}});
}

}  // namespace

OptimizerKind sgd_optimizer() {
  static const ObjectTable table = optimizer_table_of<SgdOptions>(
      "SGD", "Stochastic gradient descent, like torch.optim.SGD.", kL2Penalty,
      {field("momentum", &SgdOptions::momentum, "Momentum factor.").at_least(0),
       field("dampening", &SgdOptions::dampening, "Dampening of the momentum."),
       field("nesterov", &SgdOptions::nesterov,
             "Nesterov momentum; needs momentum above 0 and dampening 0.")},
      &check_sgd);
  return {&table, &make_sgd};
}

}  // namespace dpt
