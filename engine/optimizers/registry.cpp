// All optimizers: one line each.
#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>

#include "engine/optimizers/optimizer.h"

namespace dpt {

OptimizerKindEntry sgd_kind();
OptimizerKindEntry adam_kind();
OptimizerKindEntry adamw_kind();

std::span<const OptimizerKindEntry> optimizer_kinds() {
  static const std::array kinds = {sgd_kind(), adam_kind(), adamw_kind()};
  return kinds;
}

const VariantTable& optimizer_table() {
  static const VariantTable table = [] {
    VariantTable made;
    made.what = "optimizer";
    for (const OptimizerKindEntry& kind : optimizer_kinds()) {
      made.alternatives.push_back(kind.table);
    }
    made.hints = {{"Momentum", "SGD"}, {"momentum", "SGD"},        {"Nesterov", "SGD"},
                  {"NAG", "SGD"},      {"GradientDescent", "SGD"}, {"AdamWeightDecay", "AdamW"}};
    return made;
  }();
  return table;
}

OptimizerSpec make_optimizer(const Variant& options) {
  const auto kinds = optimizer_kinds();
  const auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const OptimizerKindEntry& entry) {
    return entry.table->name == options.type;
  });
  assert(kind != kinds.end() && "the reader admits only names of optimizer_table()");
  return kind->make(options);
}

void fill_optimizer_scalars(const OptimizerSpec& spec, double lr, std::int64_t step,
                            StepScalars& scalars) {
  assert(step >= 1);
  const OptimizerDesc& desc = spec.desc;
  scalars.lr = static_cast<float>(lr);
  scalars.first_step = step == 1 ? 1.0F : 0.0F;
  scalars.step_size = static_cast<float>(lr);
  scalars.inverse_sqrt_bias2 = 1.0F;
  if (desc.kind == OptimizerKind::sgd) return;
  // PyTorch computes the corrections in Python's doubles; the kernels then work in float.
  const double t = static_cast<double>(step);
  const double bias1 = 1.0 - std::pow(desc.beta1, t);
  const double bias2 = 1.0 - std::pow(desc.beta2, t);
  scalars.step_size = static_cast<float>(lr / bias1);
  scalars.inverse_sqrt_bias2 = static_cast<float>(1.0 / std::sqrt(bias2));
}

}  // namespace dpt
