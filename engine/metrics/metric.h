// Metrics: results besides the loss. The loss kernels compute the sums that a metric needs
// (LossDesc::sums). The metric turns them into a number, and gives it a name for the log, monitors
// and --require.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/config/registry.h"
#include "engine/config/target_kinds.h"
#include "engine/config/train_spec.h"
#include "kernels/backend.h"

namespace dpt {

/// Input of a metric: sums and data of the samples that count (Loss::counts).
struct Measured {
  std::span<const double> sums{};  ///< values of Metric::sums
  double samples = 0;
  // Set in evaluations only.
  std::span<const std::int32_t> labels{}, predictions{};
  std::span<const std::string> class_names{};
  std::int64_t classes = 0;  ///< outputs of the model
  /// Returns the sum of the squared deviations of the targets from the mean target of their output,
  /// over all samples and outputs. Null if the targets are one-hot, given by the labels.
  std::function<double()> target_spread{};
  /// Maximum that a sample adds to a sum of SampleSum::matches. It is 1 if the sums add up
  /// fractions of correct outputs, and the number of outputs if they count correct outputs.
  double matches_per_sample = 1;
  /// Outputs of each sample that counts, `classes` values each; probabilities if the loss defines
  /// them. Empty unless a metric needs them (Metric::needs_outputs).
  std::span<const float> outputs{};
  /// Multi-hot targets, one for each value in `outputs`: 1 if the target is above 0.5. Empty if
  /// samples have labels.
  std::span<const std::uint8_t> hot{};
};

struct Metric {
  std::string name;             ///< "accuracy_top5"
  std::vector<MetricSum> sums;  ///< sums that the loss computes for it
  bool in_training = true;      ///< false: only evaluations measure it, because it needs labels
  bool needs_outputs = false;   ///< needs the outputs of all samples (Measured::outputs)
  std::function<double(const Measured&)> value;
  /// Returns the value of each class, with the names of the classes; null if there are none.
  std::function<NamedValues(const Measured&)> by_class;
  /// Returns the number of classes that the value leaves out; null if it never leaves out any.
  std::function<std::int64_t(const Measured&)> left_out;
};

/// Model and data for which a metric is made.
struct MetricContext {
  std::int64_t classes = 0;  ///< outputs of the model
  std::string loss;          ///< type of the loss
  bool has_errors = false;   ///< Loss::has_errors
  TargetKind targets = TargetKind::class_index;
};

struct MetricKind {
  const ObjectTable* table;
  Direction better;
  TargetKinds targets;  ///< kinds of targets that it supports
  /// The stem: beginning of the names of the kind's metrics, after the average if there is one.
  /// Unique among the kinds.
  std::string stem;
  /// Returns the part of the name after the stem; null if there is none.
  std::string (*suffix)(const Variant& options);
  /// Makes the metric. Throws ErrorKind::usage for options that do not fit the model or the data.
  /// make_metrics sets the name.
  Metric (*make)(const Variant& options, const MetricContext& context);
  /// Returns the Average that comes before "_" and the stem in the name; null if there is none.
  std::string (*average)(const Variant& options) = nullptr;
};

const Registry<MetricKind>& metric_kinds();

/// Metrics of a run: accuracy, if it is defined for the targets, then the metrics of the config.
struct MetricSet {
  std::vector<Metric> metrics;
  /// Sums of all metrics, one metric after another. The first is the sum for accuracy, even if
  /// accuracy is not measured.
  std::vector<MetricSum> sums;
  std::vector<std::size_t> first;  ///< index of each metric's first sum in `sums`

  /// Returns true if a metric needs the outputs of all samples of an evaluation.
  bool needs_outputs() const;
  /// Returns the input of one metric. `measured` has the sums of all metrics.
  Measured of(std::size_t metric, Measured measured) const;
  /// Returns the values of the metrics that training steps measure, or of all metrics if `all`.
  NamedValues values(const Measured& measured, bool all) const;
};
/// Removes accuracy from `values` if it comes first, and returns it. Results store it in a separate
/// field.
std::optional<double> take_accuracy(NamedValues& values);

/// Returns true if accuracy is defined for this kind of targets.
bool has_accuracy(TargetKind targets);

/// Makes the metrics of a run. Throws ErrorKind::usage for invalid metrics, and for two metrics
/// that have the same name but different options.
MetricSet make_metrics(const std::vector<Variant>& metrics, const MetricContext& context);

/// Returns the quantities that a run with these metrics measures: the loss, accuracy, and the
/// metrics.
std::vector<std::string> measured_names(const std::vector<Variant>& metrics);
/// Returns the direction in which a monitor, such as "val/accuracy_top5", improves; unset if no
/// metric can have that name.
std::optional<Direction> better_direction(const std::string& monitor);

}  // namespace dpt
