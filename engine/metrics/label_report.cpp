#include "engine/metrics/label_report.h"

#include <cmath>
#include <cstddef>

namespace dpt {
namespace {

LabelMeans means_of(const std::vector<LabelScores>& labels) {
  LabelMeans sum;
  for (const LabelScores& label : labels) {
    sum.precision += label.counts.precision();
    sum.recall += label.counts.recall();
    sum.f1 += label.counts.f1();
    sum.average_precision += label.average_precision;
  }
  const auto count = static_cast<double>(labels.size());
  return {sum.precision / count, sum.recall / count, sum.f1 / count, sum.average_precision / count};
}

}  // namespace

LabelReport make_label_report(const Measured& of, std::span<const double> thresholds) {
  const auto classes = static_cast<std::size_t>(of.classes);
  LabelReport report;
  report.samples = static_cast<std::int64_t>(of.labels.size());
  report.labels.resize(classes);
  const std::vector<LabelCounts> counts = count_labels(of, thresholds);
  LabelCounts all;
  for (std::size_t c = 0; c < classes; ++c) {
    LabelScores& label = report.labels[c];
    label.counts = counts[c];
    all.right += counts[c].right;
    all.support += counts[c].support;
    all.predictions += counts[c].predictions;
    label.threshold = threshold_of(thresholds, c);
    const Ranking ranking = rank_outputs(of, c, c + 1);
    label.average_precision = ranking.average_precision();
    if (ranking.positives() > 0 && ranking.negatives() > 0) label.auroc = ranking.area();
    label.best = ranking.best_threshold();
  }
  if (report.samples == 0) {
    report.macro = report.micro = {NAN, NAN, NAN, NAN};
    return report;
  }
  report.macro = means_of(report.labels);
  report.micro = {all.precision(), all.recall(), all.f1(),
                  rank_outputs(of, 0, classes).average_precision()};
  return report;
}

}  // namespace dpt
