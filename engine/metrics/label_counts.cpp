#include "engine/metrics/label_counts.h"

#include <cstddef>

#include "engine/metrics/averaging.h"

namespace dpt {
namespace {

double ratio_of(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

double LabelCounts::precision() const {
  return ratio_of(right, predictions);
}

double LabelCounts::recall() const {
  return ratio_of(right, support);
}

double LabelCounts::f1() const {
  return ratio_of(2 * right, predictions + support);
}

float threshold_of(std::span<const double> thresholds, std::size_t c) {
  if (thresholds.empty()) return static_cast<float>(kDefaultThreshold);
  return static_cast<float>(thresholds.size() == 1 ? thresholds[0] : thresholds[c]);
}

std::vector<LabelCounts> count_labels(const Measured& of, std::span<const double> thresholds) {
  const auto classes = static_cast<std::size_t>(of.classes);
  std::vector<LabelCounts> counts(classes);
  if (of.hot.empty()) {
    for (std::size_t i = 0; i < of.labels.size(); ++i) {
      const auto label = static_cast<std::size_t>(of.labels[i]);
      const auto prediction = static_cast<std::size_t>(of.predictions[i]);
      ++counts[label].support;
      ++counts[prediction].predictions;
      if (label == prediction) ++counts[label].right;
    }
    return counts;
  }
  for (std::size_t c = 0; c < classes; ++c) {
    const float threshold = threshold_of(thresholds, c);
    for (std::size_t at = c; at < of.hot.size(); at += classes) {
      const bool is_hot = of.hot[at] != 0, is_predicted = of.outputs[at] > threshold;
      counts[c].support += is_hot ? 1 : 0;
      counts[c].predictions += is_predicted ? 1 : 0;
      counts[c].right += is_hot && is_predicted ? 1 : 0;
    }
  }
  return counts;
}

}  // namespace dpt
