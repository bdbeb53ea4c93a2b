// SGD as torch.optim.SGD: momentum, dampening, Nesterov momentum, weight decay as an L2 term.
#include "engine/optimizers/optimizer.h"

namespace dpt {
namespace {

struct SgdOptions {
  double lr = 1e-3;
  double momentum = 0.0;
  double dampening = 0.0;
  bool nesterov = false;
  double weight_decay = 0.0;
  bool maximize = false;
};

std::string check(const SgdOptions& options) {
  if (options.nesterov && (options.momentum == 0.0 || options.dampening != 0.0)) {
    return fmt::format(
        "nesterov: true needs a momentum above 0 and a dampening of 0, found momentum: {} and "
        "dampening: {}",
        options.momentum, options.dampening);
  }
  return {};
}

const ObjectTable& table() {
  static const ObjectTable the_table = object_table<SgdOptions>(
      "SGD", "Stochastic gradient descent, as torch.optim.SGD.",
      {field("lr", &SgdOptions::lr, "Learning rate, before lr_schedule is applied.").at_least(0),
       field("momentum", &SgdOptions::momentum, "Momentum factor.").at_least(0),
       field("dampening", &SgdOptions::dampening, "Dampening of the momentum."),
       field("nesterov", &SgdOptions::nesterov,
             "Nesterov momentum; needs momentum above 0 and dampening 0."),
       field("weight_decay", &SgdOptions::weight_decay, "L2 penalty, added to the gradient.")
           .at_least(0),
       field("maximize", &SgdOptions::maximize, "Maximise the loss instead of minimising it.")},
      &check);
  return the_table;
}

OptimizerSpec make(const Variant& variant) {
  const SgdOptions& options = variant.as<SgdOptions>();
  OptimizerSpec spec;
  spec.lr = options.lr;
  spec.desc.kind = OptimizerKind::sgd;
  spec.desc.momentum = static_cast<float>(options.momentum);
  spec.desc.dampening = static_cast<float>(options.dampening);
  spec.desc.nesterov = options.nesterov;
  spec.desc.weight_decay = options.weight_decay;
  spec.desc.maximize = options.maximize;
  if (options.momentum != 0.0) spec.state_names = {"momentum_buffer"};
  return spec;
}

}  // namespace

OptimizerKindEntry sgd_kind() {
  return {&table(), &make};
}

}  // namespace dpt
