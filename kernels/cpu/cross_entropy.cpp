#include "kernels/cpu/cross_entropy.h"

#include <algorithm>
#include <vector>

#include "kernels/common/class_weights.h"
#include "kernels/common/softmax.h"
#include "kernels/cpu/check.h"
#include "kernels/cpu/loss_rows.h"

namespace dpt {
namespace {

struct CrossEntropyRows {
  CrossEntropyDesc d;
  double mean_weight = 1;

  LossRow operator()(const float* logits, std::int32_t label, float scale, float* gradient,
                     bool) const {
    LossRow result;
    result.counts = d.ignore_index != label;
    const ClassWeights weights = {d.class_weights.empty() ? nullptr : d.class_weights.data(),
                                  mean_weight};
    const auto classes = static_cast<std::int32_t>(d.classes);
    const SoftmaxRow row = softmax_cross_entropy(logits, classes, label, d.label_smoothing, scale,
                                                 result.counts ? gradient : nullptr, weights);
    result.prediction = row.prediction;
    result.weight = result.counts ? weights.of(label) : 0.0F;
    result.loss = result.counts ? row.loss : 0.0F;
    if (gradient && !result.counts) std::fill_n(gradient, classes, 0.0F);
    return result;
  }
};

}  // namespace

std::unique_ptr<LossOp> make_cpu_cross_entropy(const CrossEntropyDesc& desc) {
  check_cpu_desc("cross-entropy", desc.type, desc.batch);
  check_class_weights("cpu", "cross-entropy", desc.classes, desc.class_weights);
  const double mean = desc.class_weights.empty() ? 1.0 : mean_of(desc.class_weights);
  return make_cpu_loss(desc, CrossEntropyRows{desc, mean});
}

}  // namespace dpt
