// Scores of each class against the others. An evaluation with class labels reports them in addition
// to its metrics.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace dpt {

/// Scores of a class. TP is the number of its samples that were predicted as this class, FN the
/// number of its samples that were predicted as another, and FP the number of samples of other
/// classes that were predicted as this class. A quotient whose divisor is 0 is 0, as in
/// scikit-learn's classification_report.
struct ClassScores {
  double precision = 0;          ///< TP / (TP + FP)
  double recall = 0;             ///< TP / (TP + FN)
  double f1 = 0;                 ///< 2 TP / (2 TP + FP + FN)
  std::int64_t support = 0;      ///< samples of the class
  std::int64_t predictions = 0;  ///< samples predicted as the class
};

struct ClassReport {
  std::vector<ClassScores> classes;
  /// Means over the classes that have samples or were predicted, each with the same weight
  /// (scikit-learn's macro avg). Its counts cover all samples. NaN without samples.
  ClassScores macro;
  /// Number of samples for each pair of label and prediction. Pairs without samples are absent.
  std::map<std::pair<std::int32_t, std::int32_t>, std::int64_t> confusion;
};

/// Makes the report from the samples that count (Loss::counts). REQUIRES: labels and predictions
/// are in [0, classes).
ClassReport make_class_report(std::span<const std::int32_t> labels,
                              std::span<const std::int32_t> predictions, std::int64_t classes);

inline constexpr int kCalibrationBins = 15;

/// Samples whose prediction has a probability in ((m-1)/M, m/M], M = kCalibrationBins.
struct CalibrationBin {
  std::int64_t samples = 0, right = 0;
  double probability = 0;  ///< sum of the probabilities
};

/// Returns the M bins of the samples that count, or none if a probability is NaN.
std::vector<CalibrationBin> calibration_bins(std::span<const std::int32_t> labels,
                                             std::span<const std::int32_t> predictions,
                                             std::span<const float> probabilities);

/// Returns the expected calibration error (Guo et al., On Calibration of Modern Neural Networks,
/// ICML 2017, equation 3, with M = 15). The samples are put into bins ((m-1)/M, m/M] by the
/// probability of their prediction. The error is the mean over the bins of |accuracy - mean
/// probability|, weighted by their numbers of samples. It ranges from 0 (calibrated) to 1. NaN
/// without samples, or if a probability is NaN.
double calibration_error(std::span<const std::int32_t> labels,
                         std::span<const std::int32_t> predictions,
                         std::span<const float> probabilities);

}  // namespace dpt
