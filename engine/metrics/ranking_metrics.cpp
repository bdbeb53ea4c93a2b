// Area under the ROC curve and average precision, which measure how well the outputs rank the
// samples of a class above others.
#include "engine/metrics/averaging.h"
#include "engine/metrics/kinds.h"
#include "engine/metrics/ranking.h"

namespace dpt {
namespace {

struct RankingOptions {
  Average average = Average::macro;
};

ClassValues areas(const Measured& of) {
  ClassValues values;
  for (std::size_t c = 0; c < static_cast<std::size_t>(of.classes); ++c) {
    const Ranking ranking = rank_outputs(of, c, c + 1);
    const bool is_defined = ranking.positives() > 0 && ranking.negatives() > 0;
    values.push_back(is_defined ? std::optional(ranking.area()) : std::nullopt);
  }
  return values;
}

ClassValues average_precisions(const Measured& of) {
  ClassValues values;
  for (std::size_t c = 0; c < static_cast<std::size_t>(of.classes); ++c) {
    values.emplace_back(rank_outputs(of, c, c + 1).average_precision());
  }
  return values;
}

std::int64_t classes_without_area(const Measured& of) {
  const std::size_t samples = of.labels.size();
  std::int64_t count = 0;
  for (std::size_t c = 0; c < static_cast<std::size_t>(of.classes); ++c) {
    std::size_t positives = 0;
    for (std::size_t i = 0; i < samples; ++i) positives += is_positive(of, i, c) ? 1 : 0;
    if (positives == 0 || positives == samples) ++count;
  }
  return count;
}

Metric make_auroc(const Variant& variant, const MetricContext&) {
  const Average average = variant.as<RankingOptions>().average;
  Metric metric = averaged_metric(average, &areas, [](const Measured& of) {
    return rank_outputs(of, 0, static_cast<std::size_t>(of.classes)).area();
  });
  metric.needs_outputs = true;
  if (average != Average::micro) metric.left_out = &classes_without_area;
  return metric;
}

Metric make_average_precision(const Variant& variant, const MetricContext&) {
  Metric metric = averaged_metric(
      variant.as<RankingOptions>().average, &average_precisions, [](const Measured& of) {
        return rank_outputs(of, 0, static_cast<std::size_t>(of.classes)).average_precision();
      });
  metric.needs_outputs = true;
  return metric;
}

MetricKind ranking_kind(const ObjectTable& table,
                        Metric (*make)(const Variant& options, const MetricContext& context)) {
  static const TargetKinds kinds = {TargetKind::class_index, TargetKind::soft_labels,
                                    TargetKind::multi_hot};
  return {&table, Direction::max, kinds, table.name, nullptr, make, [](const Variant& options) {
            return std::string(name_of(options.as<RankingOptions>().average));
          }};
}

}  // namespace

MetricKind auroc_metric() {
  static const ObjectTable table = object_table<RankingOptions>(
      "auroc",
      "`macro_auroc`: the area under the ROC curve of each class against the others, "
      "scikit-learn's roc_auc_score with multi_class='ovr'. The mean leaves out classes without "
      "positive or without negative samples, and left_out in the log line counts them. Only in "
      "evaluations.",
      {field("average", &RankingOptions::average, kAverageDoc)});
  return ranking_kind(table, &make_auroc);
}

MetricKind average_precision_metric() {
  static const ObjectTable table = object_table<RankingOptions>(
      "average_precision",
      "`macro_average_precision` (mAP): the area under the precision-recall curve of each class "
      "against the others, scikit-learn's average_precision_score: 0 for a class without positive "
      "samples. Only in evaluations.",
      {field("average", &RankingOptions::average, kAverageDoc)});
  return ranking_kind(table, &make_average_precision);
}

}  // namespace dpt
