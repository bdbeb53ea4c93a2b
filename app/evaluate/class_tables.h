// Tables of dpt eval about classes: scores, confusions and calibration.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/data/split.h"
#include "engine/metrics/class_report.h"
#include "engine/run/run_log.h"
#include "engine/training/evaluator.h"

namespace dpt {

struct EvaluatedClasses {
  ClassReport report;
  std::optional<double> calibration_error;  ///< unset if outputs are not probabilities
  std::vector<CalibrationBin> calibration;  ///< empty if outputs are not probabilities
  std::vector<std::string> names;           ///< one for each class
};

/// Evaluates the classes of the samples that count (Loss::counts). Returns nothing if samples have
/// no labels. REQUIRES: JobModel::keeps_confidence.
std::optional<EvaluatedClasses> evaluate_classes(const Job& job, const Split& split,
                                                 const EvalResult& result);

/// Adds all results as fields (docs/guide/evaluation.md).
void add_classes(Json& out, const EvaluatedClasses& classes);

/// Returns a name for a table column: printable, shortened if necessary, and isolated from the text
/// direction around it.
std::string shown_name(const std::string& name);

/// Returns readable tables: all classes, or only the worst if there are many. `colours` is true for
/// a terminal with colours.
std::string text_of_classes(const EvaluatedClasses& classes, bool colours = false);

}  // namespace dpt
