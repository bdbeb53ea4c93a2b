// Adadelta, like torch.optim.Adadelta.
#include "engine/optimizers/betas.h"

namespace dpt {
namespace {

struct AdadeltaOptions : OptimizerOptions {
  AdadeltaOptions() { lr = 1.0; }
  double rho = 0.9;
  double eps = 1e-6;
};

OptimizerSpec make_adadelta(const Variant& variant) {
  const auto& options = variant.as<AdadeltaOptions>();
  return optimizer_spec<AdadeltaFormula>(options, {{"square_avg"}, {"acc_delta"}},
                                         [options](double lr, double weight_decay, std::int64_t) {
                                           AdadeltaFormula::Step step;
                                           step.lr = static_cast<float>(lr);
                                           step.weight_decay = static_cast<float>(weight_decay);
                                           step.rho = static_cast<float>(options.rho);
                                           step.one_minus_rho =
                                               static_cast<float>(1.0 - options.rho);
                                           step.eps = static_cast<float>(options.eps);
                                           return step;
                                         });
}

}  // namespace

OptimizerKind adadelta_optimizer() {
  using S = AdadeltaOptions;
  static const ObjectTable table = optimizer_table_of<S>(
      "Adadelta", "Adadelta, like torch.optim.Adadelta.", kL2Penalty,
      {field("rho", &S::rho, "Decay rate of the running averages.").range(0, 1), eps_field<S>()});
  return {&table, &make_adadelta};
}

}  // namespace dpt
