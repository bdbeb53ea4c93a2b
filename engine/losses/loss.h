// The loss of a config, made for a model and its data. It creates the operation that a device runs.
// The formulas are in kernels/common.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/config/registry.h"
#include "engine/config/target_kinds.h"
#include "kernels/backend.h"

namespace dpt {

/// Model and data for which a loss is made.
struct LossContext {
  std::int64_t classes = 0;  ///< width of the model's output
  std::span<const std::string> class_names;
  /// Returns the number of training samples of each class. Only losses that need the numbers call
  /// it, because it may read all samples.
  std::function<std::vector<std::int64_t>()> class_counts;
  TargetShape targets{};  ///< targets of the data
};

/// Shape of one operation of a loss.
struct LossShape {
  std::int64_t batch = 0, classes = 0;
  DType type = DType::f32;
  bool training = true;  ///< true: computes a gradient
  std::vector<MetricSum> sums = {{}};

  /// Copies these values to the fields of `desc` with the same names.
  void fill(LossDesc& desc) const;
};

/// A loss, independent of devices. The mean over a batch or a split is the sum of the samples'
/// losses over the sum of their weights.
struct Loss {
  TargetShape targets;               ///< targets of the data
  std::vector<float> class_weights;  ///< factor on the weight of each class's samples; empty: all 1
  std::optional<std::int32_t> ignore_index;  ///< samples with this label have no weight
  bool has_errors = false;  ///< true: its operation computes every SampleSum, not only top_k
  std::vector<MetricSum> sums = {{}};  ///< sums that the operation computes for metrics
  using Compile = std::function<std::unique_ptr<LossOp>(OpFactory&, const LossShape&)>;
  Compile compile;
  Compile compile_unsmoothed;  ///< compile without label smoothing; empty if the loss has no
                               ///< smoothing
  /// Returns the mean loss at which samples count as memorised, given the mean loss `first` before
  /// the first update. Both are differences from the minimum loss. Empty: 2 % of `first`.
  std::function<double(double first)> near_zero;
  /// Returns the minimum loss of a sample with these targets, without label smoothing and without
  /// the sample's own weight. Null: 0.
  std::function<double(std::span<const float> targets)> least;

  /// Returns true if the divisor of the mean depends on the samples. It is then known only after
  /// the sum over all ranks, so gradients are divided after that sum
  /// (FlatKernels::divide_by_weight).
  bool is_weighted() const { return uses_label_weights() || targets.weighted; }
  /// Returns true if metrics include a sample with this label and the sample weight `own`.
  bool counts(std::int32_t label, double own = 1) const {
    return own != 0 && !(ignore_index && ignore_index == label);
  }
  /// Returns how much such a sample contributes to the divisor of the mean.
  double weight_of(std::int32_t label, double own = 1) const;

 private:
  bool uses_label_weights() const {
    return targets.kind == TargetKind::class_index && (!class_weights.empty() || ignore_index);
  }
};

/// Kind of loss. `make` throws ErrorKind::usage for options that do not fit the model or the data.
struct LossKind {
  const ObjectTable* table;
  TargetKinds targets;  ///< targets that the loss accepts
  Loss (*make)(const Variant& options, const LossContext& context);
};

const Registry<LossKind>& loss_kinds();
/// Makes a loss. Throws ErrorKind::usage for invalid options, and for targets that the loss does
/// not take or that do not fit the model.
Loss make_loss(const Variant& options, const LossContext& context);

}  // namespace dpt
