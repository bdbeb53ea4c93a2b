// Counts of predictions and correct predictions for each class, for precision, recall and F1.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/metrics/metric.h"

namespace dpt {

/// Counts for one class. A quotient whose divisor is 0 is 0, like scikit-learn's zero_division=0.
struct LabelCounts {
  std::int64_t right = 0;        ///< samples of the class that were predicted as the class
  std::int64_t support = 0;      ///< samples of the class
  std::int64_t predictions = 0;  ///< samples predicted as the class

  double precision() const;
  double recall() const;
  double f1() const;
};

/// Threshold for multi-hot targets if the config sets none.
inline constexpr double kDefaultThreshold = 0.5;

/// Returns the threshold of a class. `thresholds` has one value for each class, one for all, or
/// none.
float threshold_of(std::span<const double> thresholds, std::size_t c);

/// Counts the samples of each class. A sample with a label has one prediction. With multi-hot
/// targets, each output above its threshold is a prediction. The comparison is in fp32.
std::vector<LabelCounts> count_labels(const Measured& of, std::span<const double> thresholds);

/// Returns the thresholds that the config sets for f1, precision or recall. Empty if all are
/// kDefaultThreshold.
std::vector<double> thresholds_of(const std::vector<Variant>& metrics);

}  // namespace dpt
