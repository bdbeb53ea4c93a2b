// Quality of a ranking of positives above negatives: area under the ROC curve, average precision,
// and the threshold with the best F1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/metrics/metric.h"

namespace dpt {

/// Ranking of positives and negatives, as counts of negatives between the scores of positives.
/// Every result is computed from these integers, so it does not depend on the order of the samples.
/// Equal scores count as ties. Needs memory only for the positives.
class Ranking {
 public:
  explicit Ranking(std::vector<float> positives);
  void add_negative(float score);

  std::uint64_t positives() const { return positive_count_; }
  std::uint64_t negatives() const { return negative_count_; }

  /// Returns scikit-learn's roc_auc_score: the probability that a positive scores higher than a
  /// negative. A tie counts half. NaN without positives, without negatives, or if a score is NaN.
  double area() const;
  /// Returns scikit-learn's average_precision_score: the sum of precision * increase in recall over
  /// decreasing thresholds. It is 0 without positives, and NaN if a score is NaN.
  double average_precision() const;

  struct Threshold {
    double threshold = 0;  ///< higher scores are predicted positive
    double f1 = 0;
  };
  /// Returns the threshold with the largest F1, halfway between two neighbouring scores. If several
  /// have the same F1, returns the highest. NaN without positives, or if a score is NaN.
  Threshold best_threshold() const;

 private:
  /// A distinct score of one or more positives, with the numbers of negatives at that score and
  /// between it and the next lower one.
  struct Step {
    float score = 0;
    std::uint64_t positives = 0;
    std::uint64_t below = 0;  ///< negatives between the previous score and this one
    std::uint64_t tied = 0;   ///< negatives with this score
    float next_below = 0;     ///< the largest score of the negatives in `below`
  };
  double threshold_under(std::size_t step) const;

  std::vector<Step> steps_;  ///< in ascending order of scores
  std::uint64_t above_ = 0;  ///< negatives above all positives
  std::uint64_t positive_count_ = 0, negative_count_ = 0;
  bool has_nan_ = false;
};

/// Ranks the samples by their outputs for the classes from `begin` to `end` - 1. Positives are
/// samples of the class. With several classes, each pair of sample and class counts as a sample.
Ranking rank_outputs(const Measured& of, std::size_t begin, std::size_t end);

}  // namespace dpt
