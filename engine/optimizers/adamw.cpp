// AdamW as torch.optim.AdamW: weight decay shrinks the weights, apart from the gradient.
#include "engine/optimizers/adam_options.h"

namespace dpt {
namespace {

struct AdamWOptions : AdamOptions {
  AdamWOptions() { weight_decay = 1e-2; }
};

}  // namespace

OptimizerKindEntry adamw_kind() {
  static const ObjectTable table = adam_table<AdamWOptions>(
      "AdamW", "Adam with decoupled weight decay, as torch.optim.AdamW.",
      "Decoupled weight decay: each update multiplies the weights by 1 - lr * weight_decay.");
  return {&table, [](const Variant& options) {
            return make_adam(options.as<AdamWOptions>(), OptimizerKind::adamw);
          }};
}

}  // namespace dpt
