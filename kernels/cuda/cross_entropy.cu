// Softmax, cross-entropy and its gradient. A team of threads handles a row of logits, with element
// c in thread c % team. The formulas of an element, the loss and the gradient are in
// kernels/common/softmax.h. A team of kSoftmaxLanes adds in the order of softmax_cross_entropy, so
// the results for few classes have the CPU's bits.
#include "kernels/cuda/ops.h"

#include "kernels/common/class_weights.h"
#include "kernels/common/loss_targets.h"
#include "kernels/cuda/loss_rows.cuh"
#include "kernels/cuda/runtime/device_copy.h"

namespace dpt {
namespace {

struct CrossEntropyRows {
  float smoothing = 0;
  ClassWeights weights;
  std::int32_t ignored = 0;  ///< label of samples that do not count
  bool ignores = false;      ///< true if `ignored` is set

  template <class Mine, class T>
  __device__ loss_rows::RowLoss run(const loss_rows::Row<T>& row, const loss_rows::Largest& largest,
                                    bool) const {
    constexpr int kThreads = Mine::kSize;
    const std::int32_t classes = row.classes, label = row.label, lane = Mine::lane();
    SoftmaxSums sums;
    // An invalid label makes the loss NaN, so that the step counts as a bad step.
    sums.at_label = row.label_exists ? to_float(row.logits[label]) - largest.value
                                     : std::numeric_limits<float>::quiet_NaN();
    for (std::int32_t c = lane; c < classes; c += kThreads) {
      const float value = to_float(row.logits[c]) - largest.value;
      sums.exponentials += static_cast<double>(exp_nonpositive(value));
      sums.logits += static_cast<double>(value * weights.of(c));
    }
    sums.exponentials = Mine::sum(sums.exponentials);
    if (smoothing > 0) sums.logits = Mine::sum(sums.logits);
    for (std::int32_t c = lane; row.outputs && c < classes; c += kThreads) {
      row.outputs[c] = softmax_output(exp_nonpositive(to_float(row.logits[c]) - largest.value),
                                      sums.exponentials);
    }
    Mine::order();  // The gradient may be in the memory of the logits.
    loss_rows::RowLoss result;
    if (classes == 0) return result;
    result.counts = !ignores || label != ignored;
    const float weight = row.label_exists ? weights.of(label) : 1.0F;
    if (row.gradient && !result.counts) {
      for (std::int32_t c = lane; c < classes; c += kThreads) store(row.gradient[c], 0.0F);
    } else if (row.gradient && weights.weights) {
      const SoftmaxGradient of(sums.exponentials, classes, smoothing, row.scale, weight,
                               weights.mean);
      for (std::int32_t c = lane; c < classes; c += kThreads) {
        float value =
            of.other(exp_nonpositive(to_float(row.logits[c]) - largest.value), weights.weights[c]);
        if (c == label) value -= of.at_label();
        store(row.gradient[c], value);
      }
    } else if (row.gradient) {
      const SoftmaxGradient of(sums.exponentials, classes, smoothing, row.scale);
      for (std::int32_t c = lane; c < classes; c += kThreads) {
        float value = of.other(exp_nonpositive(to_float(row.logits[c]) - largest.value));
        if (c == label) value -= of.at_label();
        store(row.gradient[c], value);
      }
    }
    result.weight = result.counts ? weight : 0.0F;
    if (result.counts && lane == 0) {
      result.loss = softmax_loss(sums, classes, smoothing, weight, weights.mean);
    }
    return result;
  }
};

/// Rows with soft labels; the arithmetic is that of soft_cross_entropy.
struct SoftLabelRows {
  float smoothing = 0;
  ClassWeights weights;

  template <class Mine, class T>
  __device__ loss_rows::RowLoss run(const loss_rows::Row<T>& row, const loss_rows::Largest& largest,
                                    bool) const {
    constexpr int kThreads = Mine::kSize;
    const std::int32_t classes = row.classes, lane = Mine::lane();
    const SoftTargets targets = {row.targets, smoothing, classes, weights};
    const auto logit = [&](std::int32_t c) { return to_float(row.logits[c]) - largest.value; };
    double exponentials = 0;
    for (std::int32_t c = lane; c < classes; c += kThreads) {
      exponentials += static_cast<double>(exp_nonpositive(logit(c)));
    }
    exponentials = Mine::sum(exponentials);
    const double log_sum = log(exponentials);
    for (std::int32_t c = lane; row.outputs && c < classes; c += kThreads) {
      row.outputs[c] = softmax_output(exp_nonpositive(logit(c)), exponentials);
    }
    double loss = 0, mass = 0;
    for (std::int32_t c = lane; c < classes; c += kThreads) {
      loss += targets.loss(c, logit(c), log_sum);
      mass += static_cast<double>(targets.of(c));
    }
    loss = Mine::sum(loss);
    mass = Mine::sum(mass);
    Mine::order();  // The gradient may be in the memory of the logits.
    loss_rows::RowLoss result;
    if (classes == 0) return result;
    result.loss = static_cast<float>(loss);
    if (!row.gradient) return result;
    const float factor = soft_factor(exponentials, mass, row.scale);
    for (std::int32_t c = lane; c < classes; c += kThreads) {
      store(row.gradient[c],
            soft_gradient(exp_nonpositive(logit(c)), factor, targets.of(c), row.scale));
    }
    return result;
  }
};

}  // namespace

std::unique_ptr<LossOp> make_cuda_loss_op(const CudaContext& context,
                                          const CrossEntropyDesc& desc) {
  check_class_weights(context.name, "cross-entropy", desc.classes, desc.class_weights);
  check_label_loss(context.name, "cross-entropy", desc);
  DeviceMemory weights;
  ClassWeights of_classes;
  if (!desc.class_weights.empty()) {
    weights = device_copy(context, desc.class_weights);
    of_classes = {device<const float>(weights.ptr()), mean_of(desc.class_weights)};
  }
  if (desc.targets.kind == TargetKind::soft_labels) {
    return loss_rows::make_loss(context, "cross-entropy", desc,
                                SoftLabelRows{desc.label_smoothing, of_classes}, false,
                                std::move(weights));
  }
  CrossEntropyRows rows;
  rows.smoothing = desc.label_smoothing;
  rows.weights = of_classes;
  rows.ignores = desc.ignore_index.has_value();
  rows.ignored = desc.ignore_index.value_or(0);
  const bool weighted = rows.weights.weights || rows.ignores;
  return loss_rows::make_loss(context, "cross-entropy", desc, rows, weighted, std::move(weights));
}

}  // namespace dpt
