// Adam as torch.optim.Adam: weight decay is an L2 term of the gradient.
#include "engine/optimizers/adam_options.h"

namespace dpt {

std::string check_adam(const AdamOptions& options) {
  if (options.betas.size() != 2) {
    return fmt::format("betas: expected two numbers, such as [0.9, 0.999], found {}",
                       options.betas.size());
  }
  for (double beta : options.betas) {
    // Written so that a NaN fails too.
    if (!(beta >= 0.0 && beta < 1.0)) {
      return fmt::format("betas: expected numbers of at least 0 and below 1, found {}", beta);
    }
  }
  return {};
}

OptimizerSpec make_adam(const AdamOptions& options, OptimizerKind kind) {
  OptimizerSpec spec;
  spec.lr = options.lr;
  spec.desc.kind = kind;
  spec.desc.beta1 = options.betas[0];
  spec.desc.beta2 = options.betas[1];
  spec.desc.eps = options.eps;
  spec.desc.weight_decay = options.weight_decay;
  spec.desc.amsgrad = options.amsgrad;
  spec.desc.maximize = options.maximize;
  spec.state_names = {"exp_avg", "exp_avg_sq"};
  if (options.amsgrad) spec.state_names.push_back("max_exp_avg_sq");
  return spec;
}

OptimizerKindEntry adam_kind() {
  static const ObjectTable table = adam_table<AdamOptions>("Adam", "Adam, as torch.optim.Adam.",
                                                           "L2 penalty, added to the gradient.");
  return {&table, [](const Variant& options) {
            return make_adam(options.as<AdamOptions>(), OptimizerKind::adam);
          }};
}

}  // namespace dpt
