// Counts of predictions and right predictions for each class, from which precision, recall and F1
// are computed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/metrics/metric.h"

namespace dpt {

/// Samples of one class. A quotient whose divisor is 0 is 0, as scikit-learn's zero_division=0.
struct LabelCounts {
  std::int64_t right = 0;        ///< of the class, and predicted to be
  std::int64_t support = 0;      ///< of the class
  std::int64_t predictions = 0;  ///< predicted to be of the class

  double precision() const;
  double recall() const;
  double f1() const;
};

/// The threshold of multi-hot targets where a config gives none.
inline constexpr double kDefaultThreshold = 0.5;

/// Returns the threshold of a class: `thresholds` has one for each, one for all, or none.
float threshold_of(std::span<const double> thresholds, std::size_t c);

/// Counts the samples of each class. A sample with a label has its prediction; of multi-hot
/// targets, the prediction is each output above its threshold, compared in fp32.
std::vector<LabelCounts> count_labels(const Measured& of, std::span<const double> thresholds);

/// Returns the thresholds that the metrics of a config give for f1, precision or recall; empty: all
/// are kDefaultThreshold.
std::vector<double> thresholds_of(const std::vector<Variant>& metrics);

}  // namespace dpt
