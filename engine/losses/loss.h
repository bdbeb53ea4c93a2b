// Losses: what a config says is minimised, made for a model and its data into what a device runs.
// The formulas stand in kernels/common.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/spec/fields.h"
#include "kernels/backend.h"

namespace dpt {

/// What a loss is made for.
struct LossContext {
  std::int64_t classes = 0;  ///< width of the model's output
  std::span<const std::string> class_names;
  /// How many training samples each class has. Asked only by a loss that depends on it, because it
  /// may read all samples.
  std::function<std::vector<std::int64_t>()> class_counts;
};

/// One operation of a loss.
struct LossShape {
  std::int64_t batch = 0, classes = 0;
  DType type = DType::f32;
  bool training = true;  ///< with a gradient
  std::vector<MetricSum> sums = {{}};

  /// What these are in the description of an operation.
  void fill(LossDesc& desc) const;
};

/// A loss without a device. The mean over a batch or a split is the sum of the samples' losses over
/// the sum of their weights.
struct Loss {
  std::vector<float> class_weights;          ///< the weight of a class's samples; empty: all are 1
  std::optional<std::int32_t> ignore_index;  ///< samples with this label have no weight
  bool has_errors = false;             ///< its operation adds up errors (SampleSum), not only top_k
  std::vector<MetricSum> sums = {{}};  ///< what it adds up for metrics
  using Compile = std::function<std::unique_ptr<LossOp>(OpFactory&, const LossShape&)>;
  Compile compile;
  Compile compile_unsmoothed;  ///< the same without label smoothing; empty where there is none
  /// What a mean loss must fall to for its samples to count as learned by heart, from what it was
  /// before the first update. Empty: 2 % of that.
  std::function<double(double first)> near_zero;

  /// Whether the divisor of the mean depends on the labels: then it is known only after the sum
  /// over all ranks, and so are gradients (FlatKernels::divide_by_weight).
  bool is_weighted() const { return !class_weights.empty() || ignore_index; }
  /// Whether the sample is one of those that metrics are of.
  bool counts(std::int32_t label) const { return ignore_index != label; }
  double weight_of(std::int32_t label) const;
};

/// `make` throws ErrorKind::usage for options that do not fit the model or the data.
struct LossKind {
  const ObjectTable* table;
  Loss (*make)(const Variant& options, const LossContext& context);
};

/// Defined for each loss in its own .cpp.
template <class Name>
LossKind loss_kind();

std::span<const LossKind> loss_kinds();
const VariantTable& loss_table();
Loss make_loss(const Variant& options, const LossContext& context);

}  // namespace dpt
