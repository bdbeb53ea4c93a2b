// The accuracy of each class, and the mean over the classes.
#include <cmath>

#include "engine/metrics/kinds.h"

namespace dpt {
namespace {

struct PerClassAccuracyOptions {};

/// Returns the accuracy of each class that has samples.
NamedValues by_class(const Measured& of) {
  const auto classes = static_cast<std::size_t>(of.classes);
  std::vector<double> all(classes, 0.0), right(classes, 0.0);
  for (std::size_t i = 0; i < of.labels.size(); ++i) {
    const auto label = static_cast<std::size_t>(of.labels[i]);
    all[label] += 1;
    right[label] += of.predictions[i] == of.labels[i] ? 1 : 0;
  }
  NamedValues values;
  for (std::size_t c = 0; c < classes; ++c) {
    if (all[c] == 0) continue;
    values.emplace_back(c < of.class_names.size() ? of.class_names[c] : std::to_string(c),
                        right[c] / all[c]);
  }
  return values;
}

Metric make_per_class(const Variant&, const MetricContext&) {
  Metric metric;
  metric.in_training = false;
  metric.by_class = &by_class;
  metric.value = [](const Measured& of) {
    const NamedValues classes = by_class(of);
    double sum = 0;
    for (const auto& [name, value] : classes) sum += value;
    return sum / static_cast<double>(classes.size());
  };
  return metric;
}

}  // namespace

MetricKind per_class_accuracy_metric() {
  static const ObjectTable table = object_table<PerClassAccuracyOptions>(
      "per_class_accuracy",
      "`per_class_accuracy`: the mean of the accuracies of the classes, each with the same weight "
      "(balanced accuracy); the evaluation's log line and dpt eval also have the accuracy of each "
      "class. Only in evaluations.",
      {});
  return {&table,  Direction::max, labelled_targets(), "per_class_accuracy",
          nullptr, &make_per_class};
}

}  // namespace dpt
