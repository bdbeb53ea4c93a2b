// Options that several optimizers share. Included by their sources only.
#pragma once

#include <string>
#include <vector>

#include "engine/optimizers/kinds.h"

namespace dpt {

/// Options of an optimizer with running averages of the gradient and of its square.
struct BetaOptions : OptimizerOptions {
  std::vector<double> betas = {0.9, 0.999};
  double eps = 1e-8;
};

/// Returns a Step in which the members that Adam and the optimizers derived from it share are set.
/// `decay` is lr * weight_decay if weight decay is decoupled from the gradient.
template <class Step>
Step step_of_averages(const BetaOptions& options, bool decoupled, double decay,
                      double weight_decay) {
  Step step;
  if (decoupled) {
    step.shrink = static_cast<float>(1.0 - decay);
  } else {
    step.weight_decay = static_cast<float>(weight_decay);
  }
  step.one_minus_beta1 = static_cast<float>(1.0 - options.betas[0]);
  step.beta2 = static_cast<float>(options.betas[1]);
  step.one_minus_beta2 = static_cast<float>(1.0 - options.betas[1]);
  step.eps = static_cast<float>(options.eps);
  return step;
}

/// Returns a message if the betas are invalid, otherwise an empty string.
std::string check_betas(const std::vector<double>& betas);
template <class S>
std::string check_betas_of(const S& options) {
  return check_betas(options.betas);
}

template <class S>
Field betas_field() {
  return inherited_field<S>("betas", &S::betas,
                            "Decay rates of the running averages of the gradient and of its "
                            "square.")
      .items(2, 2);
}
template <class S>
Field eps_field() {
  return inherited_field<S>("eps", &S::eps, "Added to the denominator for numerical stability.")
      .at_least(0);
}

constexpr const char* kEitherDecay =
    "L2 penalty, added to the gradient; or, with decoupled_weight_decay, each update multiplies "
    "the weights by 1 - lr * weight_decay.";
template <class S>
Field decoupled_field() {
  return field("decoupled_weight_decay", &S::decoupled_weight_decay,
               "Apply weight decay directly to the weights instead of adding it to the gradient, "
               "as AdamW does.");
}

/// Returns the field `always_adapt` of layer-wise optimizers.
template <class S>
Field always_adapt_field() {
  return field("always_adapt", &S::always_adapt,
               "false: the learning rate of parameters without weight decay, such as those of a "
               "group with weight_decay: 0, does not adapt to their norms.");
}

}  // namespace dpt
