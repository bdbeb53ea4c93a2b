// Elementwise losses; the formulas are in kernels/common/element_losses.h.
#include "kernels/cuda/ops.h"

#include "kernels/common/class_weights.h"
#include "kernels/common/loss_targets.h"
#include "kernels/cuda/loss_rows.cuh"
#include "kernels/cuda/runtime/device_copy.h"

namespace dpt {
namespace {

template <class Formula>
struct ElementRows {
  Formula formula;
  const float* pos_weight = nullptr;  ///< null: all are 1

  template <class Mine, class T>
  __device__ loss_rows::RowLoss run(const loss_rows::Row<T>& row, const loss_rows::Largest&,
                                    bool wants_errors) const {
    constexpr int kThreads = Mine::kSize;
    const std::int32_t classes = row.classes, lane = Mine::lane();
    double loss = 0, absolute = 0, squared = 0, matches = 0;
    for (std::int32_t c = lane; c < classes; c += kThreads) {
      const float x = to_float(row.logits[c]), y = target(row, c);
      loss += static_cast<double>(formula.value(x, y, weight(c)));
      if (row.outputs) row.outputs[c] = formula.predicted(x);
      if (!wants_errors) continue;
      const float predicted = formula.predicted(x), error = predicted - y;
      absolute += static_cast<double>(fabsf(error));
      squared += static_cast<double>(error * error);
      matches += is_hot(predicted) == is_hot(y) ? 1.0 : 0.0;
    }
    loss = Mine::sum(loss);
    if (wants_errors) {
      absolute = Mine::sum(absolute);
      squared = Mine::sum(squared);
      matches = Mine::sum(matches);
    }
    Mine::order();  // The gradient may be in the memory of the logits.
    loss_rows::RowLoss result;
    if (classes == 0) return result;
    const auto n = static_cast<double>(classes);
    // An invalid label makes the loss NaN, so that the step counts as a bad step.
    result.loss = row.label_exists || row.targets ? static_cast<float>(loss / n)
                                                  : std::numeric_limits<float>::quiet_NaN();
    result.errors = {static_cast<float>(absolute / n), static_cast<float>(squared / n),
                     static_cast<float>(matches / n)};
    if (!row.gradient) return result;
    const float share = row.scale / static_cast<float>(classes);
    for (std::int32_t c = lane; c < classes; c += kThreads) {
      const float x = to_float(row.logits[c]), y = target(row, c);
      store(row.gradient[c], formula.gradient(x, y, weight(c)) * share);
    }
    return result;
  }

  template <class T>
  __device__ static float target(const loss_rows::Row<T>& row, std::int32_t c) {
    return row.targets ? row.targets[c] : c == row.label ? 1.0F : 0.0F;
  }
  __device__ float weight(std::int32_t c) const { return pos_weight ? pos_weight[c] : 1.0F; }
};

}  // namespace

std::unique_ptr<LossOp> make_cuda_loss_op(const CudaContext& context, const ElementLossDesc& desc) {
  check_class_weights(context.name, "an elementwise loss", desc.classes, desc.pos_weight);
  check_loss_targets(context.name, "an elementwise loss", desc);
  DeviceMemory weights;
  const float* pos_weight = nullptr;
  if (!desc.pos_weight.empty()) {
    weights = device_copy(context, desc.pos_weight);
    pos_weight = device<const float>(weights.ptr());
  }
  return std::visit(
      [&](auto formula) {
        return loss_rows::make_loss(context, "an elementwise loss", desc,
                                    ElementRows<decltype(formula)>{formula, pos_weight}, false,
                                    std::move(weights));
      },
      desc.formula);
}

}  // namespace dpt
