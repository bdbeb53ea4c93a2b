// Losses: descriptions, the addresses of one call, and the interface. A part of the Backend
// contract (kernels/backend.h, whose rules apply).
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "kernels/base/types.h"
#include "kernels/common/element_losses.h"
#include "kernels/op.h"

namespace dpt {

/// Per-sample value that a loss adds up for metrics, over the samples that count.
enum class SampleSum : std::uint8_t {
  top_k,           ///< 1 where the label's output is one of the k largest (the first wins a tie)
  absolute_error,  ///< mean over the outputs of |prediction - target|; not for cross-entropy
  squared_error,   ///< mean over the outputs of (prediction - target)^2; not for cross-entropy
  matches,         ///< share of the outputs on the same side of 0.5 as their target; not for
                   ///< cross-entropy
  none             ///< 0
};
struct MetricSum {
  SampleSum kind = SampleSum::top_k;
  std::int32_t k = 1;
  bool operator==(const MetricSum&) const = default;
};

/// A loss of the model's outputs, with its gradient and the step's sums, in one kernel. The mean
/// loss of a batch is the sum of its samples' losses divided by the sum of their weights.
struct LossDesc {
  std::int64_t batch = 0;
  std::int64_t classes = 0;            ///< number of outputs per sample
  std::vector<MetricSum> sums = {{}};  ///< entries of StepMetrics::sums, in this order
  /// Targets of the samples. A sample with weight 0 does not count: it contributes nothing to the
  /// loss, the gradient or `sums`.
  TargetShape targets;
  DType type = DType::f32;
  bool training = true;  ///< false: no gradient is written
};

/// Softmax and cross-entropy with labels or soft labels, as in torch.nn.CrossEntropyLoss. A
/// sample's weight is its own weight, or 1 if it has none. With labels, it is multiplied by the
/// weight of the label's class, and is 0 if the label is ignored.
struct CrossEntropyDesc : LossDesc {
  float label_smoothing = 0.0F;
  std::vector<float> class_weights;          ///< one per class; empty: all are 1
  std::optional<std::int32_t> ignore_index;  ///< label of samples that do not count
};

/// The mean over a sample's outputs of an elementwise loss: the torch.nn loss with the name of the
/// formula. If the samples have labels only, the target is 1 for the label's output and 0 for the
/// others.
struct ElementLossDesc : LossDesc {
  element_losses::Formula formula;
  std::vector<float> pos_weight;  ///< bce_with_logits: one per output; empty: all are 1
};

/// Description of any loss. A backend that lacks a loss does not compile.
using LossOpDesc = std::variant<CrossEntropyDesc, ElementLossDesc>;

/// Addresses of one call.
struct LossArgs {
  DevPtr logits;  ///< (batch, classes)
  /// i32, indexed by slots: the label of sample k is labels[slots[k]]. Not read if the targets have
  /// no labels.
  DevPtr labels;
  DevPtr targets;      ///< f32 rows of targets.floats(), indexed by slots; null if that is 0
  DevPtr slots;        ///< i32 (batch)
  DevPtr dlogits;      ///< (batch, classes), overwritten; may be the same memory as logits
  DevPtr metrics;      ///< StepMetrics; the loss's sums are overwritten or added to
  DevPtr sample_loss;  ///< f32 (batch) or null
  DevPtr sample_sums;  ///< f32 (batch, sums): each sample's contribution to the sums; or null
  DevPtr prediction;   ///< i32 (batch): index of the largest logit; or null
  /// f32 (batch, classes): the prediction of each output (for cross-entropy, the softmax); or null.
  DevPtr outputs;
  /// f32 scalar, a factor on the gradients: 1 / (number of samples in the whole batch). If null,
  /// the gradients are those of the sum, because the divisor is known only after the sum over all
  /// ranks (see divide_by_weight).
  DevPtr inverse_count;
  GradWrite write = GradWrite::overwrite;
};

/// A loss with its gradient, per-sample values and sums, made for one description.
class LossOp {
 public:
  virtual ~LossOp() = default;
  virtual void run(const LossArgs& args) = 0;
};

}  // namespace dpt
