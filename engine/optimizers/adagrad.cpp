// Adagrad, like torch.optim.Adagrad.
#include "engine/optimizers/betas.h"

namespace dpt {
namespace {

struct AdagradOptions : OptimizerOptions {
  AdagradOptions() { lr = 1e-2; }
  double lr_decay = 0.0;
  double initial_accumulator_value = 0.0;
  double eps = 1e-10;
};

OptimizerSpec make_adagrad(const Variant& variant) {
  const auto& options = variant.as<AdagradOptions>();
  return optimizer_spec<AdagradFormula>(
      options, {{"sum", static_cast<float>(options.initial_accumulator_value)}},
      [options](double lr, double weight_decay, std::int64_t t) {
        AdagradFormula::Step step;
        const auto before = static_cast<double>(t - 1);
        step.lr = static_cast<float>(lr / (1.0 + before * options.lr_decay));
        step.weight_decay = static_cast<float>(weight_decay);
        step.eps = static_cast<float>(options.eps);
        return step;
      });
}

}  // namespace

OptimizerKind adagrad_optimizer() {
  using S = AdagradOptions;
  static const ObjectTable table = optimizer_table_of<S>(
      "Adagrad", "Adagrad, like torch.optim.Adagrad.", kL2Penalty,
      {field("lr_decay", &S::lr_decay,
             "Update t (from 1) divides the learning rate by 1 + (t - 1) * lr_decay.")
           .at_least(0),
       field("initial_accumulator_value", &S::initial_accumulator_value,
             "Starting value of the sum of the squared gradients.")
           .range(0, 1e30),
       eps_field<S>()});
  return {&table, &make_adagrad};
}

}  // namespace dpt
