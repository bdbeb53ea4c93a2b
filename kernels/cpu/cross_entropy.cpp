#include "kernels/cpu/ops.h"

#include <algorithm>
#include <vector>

#include "kernels/common/class_weights.h"
#include "kernels/common/loss_targets.h"
#include "kernels/common/softmax.h"
#include "kernels/cpu/check.h"
#include "kernels/cpu/loss_rows.h"

namespace dpt {
namespace {

struct CrossEntropyRows {
  CrossEntropyDesc d;
  double mean_weight = 1;

  LossRow operator()(const LossInput& in) const {
    // Compute the outputs before the gradient overwrites the logits.
    if (in.outputs) softmax_outputs(in.logits, static_cast<std::int32_t>(d.classes), in.outputs);
    return in.targets ? soft(in) : with_label(in);
  }

 private:
  ClassWeights weights() const {
    return {d.class_weights.empty() ? nullptr : d.class_weights.data(), mean_weight};
  }

  LossRow with_label(const LossInput& in) const {
    LossRow result;
    result.counts = d.ignore_index != in.label;
    const auto classes = static_cast<std::int32_t>(d.classes);
    const SoftmaxRow row =
        softmax_cross_entropy(in.logits, classes, in.label, d.label_smoothing, in.scale,
                              result.counts ? in.gradient : nullptr, weights());
    result.prediction = row.prediction;
    result.weight = result.counts ? weights().of(in.label) : 0.0F;
    result.loss = result.counts ? row.loss : 0.0F;
    if (in.gradient && !result.counts) std::fill_n(in.gradient, classes, 0.0F);
    return result;
  }

  LossRow soft(const LossInput& in) const {
    const SoftTargets targets = {in.targets, d.label_smoothing,
                                 static_cast<std::int32_t>(d.classes), weights()};
    const SoftmaxRow row = soft_cross_entropy(in.logits, targets, in.scale, in.gradient);
    LossRow result;
    result.prediction = row.prediction;
    result.loss = row.loss;
    return result;
  }
};

}  // namespace

std::unique_ptr<LossOp> make_cpu_loss_op(const CrossEntropyDesc& desc) {
  check_cpu_desc("cross-entropy", desc.type, desc.batch);
  check_class_weights("cpu", "cross-entropy", desc.classes, desc.class_weights);
  check_label_loss("cpu", "cross-entropy", desc);
  const double mean = desc.class_weights.empty() ? 1.0 : mean_of(desc.class_weights);
  return make_cpu_loss(desc, CrossEntropyRows{desc, mean});
}

}  // namespace dpt
