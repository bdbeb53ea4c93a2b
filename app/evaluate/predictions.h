// The tables of predictions that dpt eval --predictions and dpt predict write.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "engine/data/split.h"
#include "engine/training/evaluator.h"

namespace dpt {

/// Returns the noun for the outputs of a model with this loss: "probability", or "output" if they
/// are not probabilities.
const char* name_of_outputs(const std::string& loss);

/// Returns the name of a class or an output.
std::string name_of(const std::vector<std::string>& names, std::size_t index);

/// Format of several labels in one field of a CSV file.
struct LabelText {
  std::vector<std::string> names;
  std::vector<double> thresholds;  ///< an output above its threshold is a label (threshold_of)
  char separator = 0;              ///< separator of the names; 0: write no columns with labels

  explicit operator bool() const { return separator != 0; }
  /// Returns the names of the outputs above their thresholds.
  std::vector<std::string> names_above(std::span<const float> outputs) const;
  /// Returns "cat|dog" for a row of outputs, in the order of the names.
  std::string predicted(std::span<const float> outputs) const;
  /// Returns the labels of a row of targets in the same form. A target above 0.5 is a label.
  std::string of_targets(std::span<const float> targets) const;
};

/// Returns the format for a run with the data and metrics of `spec`. `names` are the names of the
/// outputs.
LabelText label_text(const TrainSpec& spec, std::vector<std::string> names);

/// Returns a CSV file of the samples of a split, in order. A sample with a label has its label, its
/// prediction and the output of that prediction; with `all_outputs`, it also has the outputs of all
/// classes. Other samples have each output and its target. If `labels` has a separator, the columns
/// labels and predicted_labels are added. A sample that was left out has only its label.
std::string predictions_table(const Job& job, const Split& split, const SampleResults& samples,
                              bool all_outputs, const LabelText& labels);

/// Returns the `most` classes with the largest outputs, beginning with `prediction`. Classes with
/// equal outputs are in ascending order.
std::vector<std::size_t> largest_outputs(std::span<const float> outputs, std::size_t prediction,
                                         std::size_t most);

}  // namespace dpt
