// What Adam and AdamW share; nobody else includes this.
#pragma once

#include "engine/optimizers/optimizer.h"

namespace dpt {

/// Options of torch.optim.Adam and AdamW, which differ in how weight decay is applied and in its
/// default.
struct AdamOptions {
  double lr = 1e-3;
  std::vector<double> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0.0;
  bool amsgrad = false;
  bool maximize = false;
};

std::string check_adam(const AdamOptions& options);
OptimizerSpec make_adam(const AdamOptions& options, OptimizerKind kind);

/// The rows of both tables. S is AdamOptions or a struct derived from it.
template <class S>
ObjectTable adam_table(const char* name, const char* doc, const char* weight_decay_doc) {
  // A pointer to a member of the base is converted, so that the rows are made for S itself.
  const auto of = [](auto AdamOptions::*member) {
    using T = std::remove_reference_t<decltype(std::declval<AdamOptions>().*member)>;
    return static_cast<T S::*>(member);
  };
  return object_table<S>(
      name, doc,
      {field("lr", of(&AdamOptions::lr), "Learning rate, before lr_schedule is applied.")
           .at_least(0),
       field("betas", of(&AdamOptions::betas),
             "Decay rates of the running averages of the gradient and of its square.")
           .items(2, 2),
       field("eps", of(&AdamOptions::eps), "Added to the denominator for numerical stability.")
           .at_least(0),
       field("weight_decay", of(&AdamOptions::weight_decay), weight_decay_doc).at_least(0),
       field("amsgrad", of(&AdamOptions::amsgrad),
             "AMSGrad: divide by the largest running average of the squared gradient so far."),
       field("maximize", of(&AdamOptions::maximize),
             "Maximise the loss instead of minimising it.")},
      +[](const S& options) { return check_adam(options); });
}

}  // namespace dpt
