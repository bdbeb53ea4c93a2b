#include "kernels/cpu/ops.h"

#include <vector>

#include "kernels/common/class_weights.h"
#include "kernels/common/loss_targets.h"
#include "kernels/common/softmax.h"
#include "kernels/cpu/check.h"
#include "kernels/cpu/loss_rows.h"

namespace dpt {
namespace {

template <class Formula>
struct ElementRows {
  Formula formula;
  std::int64_t outputs;
  std::vector<float> pos_weight;

  LossRow operator()(const LossInput& in) const {
    return in.targets ? run(in, [&](std::int32_t c) { return in.targets[c]; })
                      : run(in, [&](std::int32_t c) { return c == in.label ? 1.0F : 0.0F; });
  }

  template <class Target>
  LossRow run(const LossInput& in, const Target& target) const {
    const auto n = static_cast<std::int32_t>(outputs);
    const float* logits = in.logits;
    const auto weight = [&](std::int32_t c) { return pos_weight.empty() ? 1.0F : pos_weight[c]; };
    LossRow row;
    for (std::int32_t c = 1; c < n; ++c) {
      if (logits[c] > logits[row.prediction]) row.prediction = c;
    }
    row.loss =
        mean(n, [&](std::int32_t c) { return formula.value(logits[c], target(c), weight(c)); });
    if (in.wants_errors) {
      const auto error = [&](std::int32_t c) { return formula.predicted(logits[c]) - target(c); };
      row.errors.absolute = mean(n, [&](std::int32_t c) { return fabsf(error(c)); });
      row.errors.squared = mean(n, [&](std::int32_t c) { return error(c) * error(c); });
      row.errors.matches = mean(n, [&](std::int32_t c) {
        return is_hot(formula.predicted(logits[c])) == is_hot(target(c)) ? 1.0F : 0.0F;
      });
    }
    for (std::int32_t c = 0; in.outputs && c < n; ++c) in.outputs[c] = formula.predicted(logits[c]);
    if (!in.gradient) return row;
    const float share = in.scale / static_cast<float>(n);
    for (std::int32_t c = 0; c < n; ++c) {
      in.gradient[c] = formula.gradient(logits[c], target(c), weight(c)) * share;
    }
    return row;
  }

  template <class Term>
  static float mean(std::int32_t n, const Term& term) {
    return static_cast<float>(lane_sum(n, term) / static_cast<double>(n));
  }
};

}  // namespace

std::unique_ptr<LossOp> make_cpu_loss_op(const ElementLossDesc& desc) {
  check_cpu_desc("an elementwise loss", desc.type, desc.batch);
  check_class_weights("cpu", "an elementwise loss", desc.classes, desc.pos_weight);
  check_loss_targets("cpu", "an elementwise loss", desc);
  return std::visit(
      [&](auto formula) {
        return make_cpu_loss(
            desc, ElementRows<decltype(formula)>{formula, desc.classes, desc.pos_weight});
      },
      desc.formula);
}

}  // namespace dpt
