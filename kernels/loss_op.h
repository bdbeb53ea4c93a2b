// Losses: descriptions, the addresses that one call needs, and the interface. A part of the Backend
// contract (kernels/backend.h, whose rules apply).
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "kernels/base/types.h"
#include "kernels/op.h"

namespace dpt {

/// Value of each sample that counts, which a loss adds up for metrics.
enum class SampleSum : std::uint8_t {
  top_k,           ///< 1 where the label's output is one of the k largest (the first wins a tie)
  absolute_error,  ///< mean over the outputs of |prediction - target|; not of cross-entropy
  squared_error,   ///< the same of their squares
  matches,         ///< share of the outputs that are on their target's side of 0.5; likewise
  none             ///< 0
};
struct MetricSum {
  SampleSum kind = SampleSum::top_k;
  std::int32_t k = 1;
  bool operator==(const MetricSum&) const = default;
};

/// A loss of the model's outputs with its gradient and the step's sums, in one kernel. The mean of
/// a batch is the sum of its samples' losses over the sum of their weights.
struct LossDesc {
  std::int64_t batch = 0;
  std::int64_t classes = 0;            ///< outputs of a sample
  std::vector<MetricSum> sums = {{}};  ///< entries of StepMetrics::sums, in this order
  /// A sample with the weight 0 does not count: neither its loss, nor its gradient, nor in `sums`.
  TargetShape targets;
  DType type = DType::f32;
  bool training = true;  ///< false: no gradient is written
};

/// Softmax and cross-entropy, as torch.nn.CrossEntropyLoss, of labels or of soft labels. A sample's
/// weight is its own, if it has one, times that of its label's class; of soft labels it is its own
/// alone. It is 0 for a label that is ignored.
struct CrossEntropyDesc : LossDesc {
  float label_smoothing = 0.0F;
  std::vector<float> class_weights;          ///< one for each class; empty: all are 1
  std::optional<std::int32_t> ignore_index;  ///< the label of samples that do not count
};

/// A function of one output and its target.
enum class ElementLossKind : std::uint8_t { mse, l1, smooth_l1, bce_with_logits };

/// The mean over a sample's outputs of an elementwise loss, as torch.nn's of that name. Without
/// targets of each output, they are 1 for the label's output and 0 for the others. The formulas
/// stand in kernels/common/element_losses.h.
struct ElementLossDesc : LossDesc {
  ElementLossKind kind = ElementLossKind::mse;
  float beta = 1.0F;              ///< smooth_l1
  std::vector<float> pos_weight;  ///< bce_with_logits: one for each output; empty: all are 1
};

/// Every loss: a backend that lacks one does not compile.
using LossOpDesc = std::variant<CrossEntropyDesc, ElementLossDesc>;

/// Addresses of one call.
struct LossArgs {
  DevPtr logits;  ///< (batch, classes)
  /// i32, indexed by slots: label of sample k is labels[slots[k]]. Not read where targets have
  /// none.
  DevPtr labels;
  DevPtr targets;      ///< f32 rows of targets.floats(), indexed by slots; null where that is 0
  DevPtr slots;        ///< i32 (batch)
  DevPtr dlogits;      ///< (batch, classes), overwritten; may be the same memory as logits
  DevPtr metrics;      ///< StepMetrics; what a loss sums up is overwritten or added to
  DevPtr sample_loss;  ///< f32 (batch) or null
  DevPtr sample_sums;  ///< f32 (batch, sums): what each sample adds to them; or null
  DevPtr prediction;   ///< i32 (batch): index of the largest logit; or null
  /// f32 (batch, classes): what each output says of its target, of cross-entropy the softmax; or
  /// null
  DevPtr outputs;
  /// f32 scalar: gradients are scaled by it (1 / global batch count). Null: they are those of the
  /// sum, because only the sum over all ranks tells the divisor (see divide_by_weight).
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
