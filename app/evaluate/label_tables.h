// Tables of dpt eval about the labels of multi-hot targets: scores at a threshold, and the
// threshold with the best F1.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/data/split.h"
#include "engine/metrics/label_report.h"
#include "engine/run/run_log.h"
#include "engine/training/evaluator.h"

namespace dpt {

struct EvaluatedLabels {
  LabelReport report;
  std::vector<std::string> names;  ///< one for each label
};

/// Scores the samples that count (Loss::counts) at the thresholds of the config. Returns nothing
/// unless targets are multi-hot. REQUIRES: JobModel::gathers_outputs.
std::optional<EvaluatedLabels> evaluate_labels(const Job& job, const Split& split,
                                               const EvalResult& result);

/// Adds all scores as fields (docs/guide/evaluation.md).
void add_labels(Json& out, const EvaluatedLabels& labels, bool with_best_thresholds);

/// Returns a readable table: all labels, or only the worst if there are many. With the best
/// thresholds, the text ends with a line that sets them in a config.
std::string text_of_labels(const EvaluatedLabels& labels, bool with_best_thresholds);

}  // namespace dpt
