// Evaluation of a run's best checkpoint for dpt report: scores of the classes, and the samples with
// the worst predictions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/evaluate/class_tables.h"
#include "app/evaluate/label_tables.h"

namespace dpt {

struct ReportedSample {
  std::int64_t index = 0;  ///< index in the data set
  std::string file;        ///< name of the sample in messages
  /// True and predicted class by name, or the first targets and outputs.
  std::string truth, prediction;
  std::optional<double> confidence;  ///< output of the predicted class
  double loss = 0;
  std::vector<std::byte> png;  ///< empty if samples are not images
  std::int64_t side = 0;       ///< longer side of the image
};

/// Targets and predictions of one output of a regression.
struct ReportedScatter {
  std::size_t output = 0;
  std::vector<std::pair<float, float>> points;  ///< target, prediction; may be a subset
};

struct ReportedEvaluation {
  std::string checkpoint, weights;  ///< `weights`: " (moving average)" or nothing
  std::int64_t step = 0;
  std::string split;
  std::int64_t n = 0;
  double loss = 0;
  std::optional<double> accuracy;
  std::vector<std::pair<std::string, double>> metrics;
  std::string outputs;                      ///< noun for the outputs: "probability"
  std::optional<EvaluatedClasses> classes;  ///< unset if samples have no labels
  std::optional<EvaluatedLabels> labels;    ///< absent unless targets are multi-hot
  /// Wrong predictions with the largest outputs; empty for samples without labels.
  std::vector<ReportedSample> most_certain;
  std::vector<ReportedSample> worst;  ///< samples with the largest losses
  std::int64_t wrong = 0;             ///< number of wrong predictions among the samples that count
  std::vector<ReportedScatter> scatters;  ///< plots of the first outputs of a regression
};

struct ReportedEvaluationOptions {
  std::int64_t samples = 0;  ///< maximum length of each of the two lists
  std::string devices;
  std::vector<std::string> overrides;
};

/// Evaluates the test split, or the val split if there is no test split. Throws what loading the
/// checkpoint, its data and its devices throws, and ErrorKind::data if the data is not the run's.
ReportedEvaluation evaluate_for_report(const std::string& folder,
                                       const ReportedEvaluationOptions& options);

}  // namespace dpt
