#include "kernels/cpu/element_loss.h"

#include <vector>

#include "kernels/common/class_weights.h"
#include "kernels/common/element_losses.h"
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

  LossRow operator()(const float* logits, std::int32_t label, float scale, float* gradient,
                     bool wants_errors) const {
    const auto n = static_cast<std::int32_t>(outputs);
    const auto target = [&](std::int32_t c) { return c == label ? 1.0F : 0.0F; };
    const auto weight = [&](std::int32_t c) {
      return pos_weight.empty() ? 1.0F : pos_weight[static_cast<std::size_t>(c)];
    };
    LossRow row;
    for (std::int32_t c = 1; c < n; ++c) {
      if (logits[c] > logits[row.prediction]) row.prediction = c;
    }
    row.loss =
        mean(n, [&](std::int32_t c) { return formula.value(logits[c], target(c), weight(c)); });
    if (wants_errors) {
      const auto error = [&](std::int32_t c) { return formula.predicted(logits[c]) - target(c); };
      row.absolute = mean(n, [&](std::int32_t c) { return fabsf(error(c)); });
      row.squared = mean(n, [&](std::int32_t c) { return error(c) * error(c); });
    }
    if (!gradient) return row;
    const float share = scale / static_cast<float>(n);
    for (std::int32_t c = 0; c < n; ++c) {
      gradient[c] = formula.gradient(logits[c], target(c), weight(c)) * share;
    }
    return row;
  }

  template <class Term>
  static float mean(std::int32_t n, const Term& term) {
    return static_cast<float>(lane_sum(n, term) / static_cast<double>(n));
  }
};

}  // namespace

std::unique_ptr<LossOp> make_cpu_element_loss(const ElementLossDesc& desc) {
  check_cpu_desc("an elementwise loss", desc.type, desc.batch);
  check_class_weights("cpu", "an elementwise loss", desc.classes, desc.pos_weight);
  return element_losses::with_formula(desc, [&](auto formula) {
    return make_cpu_loss(desc,
                         ElementRows<decltype(formula)>{formula, desc.classes, desc.pos_weight});
  });
}

}  // namespace dpt
