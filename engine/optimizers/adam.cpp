// Adam and AdamW as in torch.optim. Weight decay is an L2 term of the gradient in Adam, and shrinks
// the weights directly in AdamW.
#include <cmath>

#include "engine/optimizers/betas.h"

namespace dpt {
namespace {

struct AdamOptions : BetaOptions {
  bool amsgrad = false;
};
struct AdamWOptions : AdamOptions {
  AdamWOptions() { weight_decay = 1e-2; }
};

template <bool kAmsgrad>
OptimizerSpec adam_spec(const AdamOptions& options, bool decoupled,
                        std::vector<OptimizerState> states) {
  using Formula = AdamFormula<kAmsgrad>;
  return optimizer_spec<Formula>(
      options, std::move(states),
      [options, decoupled](double lr, double weight_decay, std::int64_t t) {
        const double beta1 = options.betas[0], beta2 = options.betas[1];
        const auto steps = static_cast<double>(t);
        auto step = step_of_averages<typename Formula::Step>(
            options, decoupled, static_cast<double>(static_cast<float>(lr)) * weight_decay,
            weight_decay);
        step.step_size = static_cast<float>(lr / (1.0 - std::pow(beta1, steps)));
        step.inverse_sqrt_bias2 = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(beta2, steps)));
        return step;
      });
}

template <class Options, bool kDecoupled>
OptimizerSpec make_adam(const Variant& variant) {
  const AdamOptions& options = variant.as<Options>();
  if (options.amsgrad) {
    return adam_spec<true>(options, kDecoupled, {{"exp_avg"}, {"exp_avg_sq"}, {"max_exp_avg_sq"}});
  }
  return adam_spec<false>(options, kDecoupled, {{"exp_avg"}, {"exp_avg_sq"}});
}

template <class S>
ObjectTable adam_table(const char* name, const char* doc, const char* weight_decay_doc) {
  return optimizer_table_of<S>(
      name, doc, weight_decay_doc,
      {betas_field<S>(), eps_field<S>(),
       inherited_field<S>("amsgrad", &AdamOptions::amsgrad,
                          "AMSGrad: divide by the largest running average of the squared gradient "
                          "so far.")},
      &check_betas_of<S>);
}

}  // namespace

std::string check_betas(const std::vector<double>& betas) {
  if (betas.size() != 2) {
    return fmt::format("betas: expected two numbers, such as [0.9, 0.999], found {}", betas.size());
  }
  for (const double beta : betas) {
    // This form makes a NaN fail, too.
    if (!(beta >= 0.0 && beta < 1.0)) {
      return fmt::format("betas: expected numbers of at least 0 and below 1, found {}", beta);
    }
  }
  return {};
}

OptimizerKind adam_optimizer() {
  static const ObjectTable table =
      adam_table<AdamOptions>("Adam", "Adam, like torch.optim.Adam.", kL2Penalty);
  return {&table, &make_adam<AdamOptions, false>};
}

OptimizerKind adamw_optimizer() {
  static const ObjectTable table = adam_table<AdamWOptions>(
      "AdamW", "Adam with decoupled weight decay, like torch.optim.AdamW.", kDecoupledDecay);
  return {&table, &make_adam<AdamWOptions, true>};
}

}  // namespace dpt
