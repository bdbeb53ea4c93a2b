// Scores of each label of multi-hot targets. An evaluation reports them in addition to its metrics.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/metrics/label_counts.h"
#include "engine/metrics/ranking.h"

namespace dpt {

struct LabelScores {
  LabelCounts counts;  ///< at `threshold`
  double average_precision = 0;
  std::optional<double> auroc;  ///< absent without positive or without negative samples
  float threshold = 0;
  Ranking::Threshold best;  ///< threshold with the best F1; NaN without positive samples
};

struct LabelMeans {
  double precision = 0, recall = 0, f1 = 0, average_precision = 0;
};

struct LabelReport {
  std::vector<LabelScores> labels;
  LabelMeans macro;  ///< means over all labels, each with the same weight
  LabelMeans micro;  ///< over all decisions together
  std::int64_t samples = 0;
};

/// Scores all labels; `thresholds` is as in threshold_of. REQUIRES: `of` has outputs and multi-hot
/// targets.
LabelReport make_label_report(const Measured& of, std::span<const double> thresholds);

}  // namespace dpt
