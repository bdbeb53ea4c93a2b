// F1, precision and recall for classes, or for multi-hot targets with a threshold for each output.
#include <fmt/format.h>

#include "engine/metrics/averaging.h"
#include "engine/metrics/kinds.h"
#include "engine/metrics/label_counts.h"

namespace dpt {
namespace {

struct ThresholdOptions {
  Average average = Average::macro;
  std::optional<std::vector<double>> threshold;
};

using Score = double (LabelCounts::*)() const;

/// Returns the score of each class. Leaves out classes that neither occur nor were predicted, as
/// scikit-learn does. All labels of multi-hot targets count.
ClassValues scores_of(const Measured& of, const std::vector<double>& thresholds, Score score) {
  ClassValues values;
  for (const LabelCounts& counts : count_labels(of, thresholds)) {
    const bool counts_in = !of.hot.empty() || counts.support + counts.predictions > 0;
    values.push_back(counts_in ? std::optional((counts.*score)()) : std::nullopt);
  }
  return values;
}

double micro_score(const Measured& of, const std::vector<double>& thresholds, Score score) {
  LabelCounts all;
  for (const LabelCounts& counts : count_labels(of, thresholds)) {
    all.right += counts.right;
    all.support += counts.support;
    all.predictions += counts.predictions;
  }
  return (all.*score)();
}

void check_thresholds(const Variant& variant, const MetricContext& context) {
  const auto& thresholds = variant.as<ThresholdOptions>().threshold;
  if (!thresholds) return;
  if (context.targets != TargetKind::multi_hot) {
    fail(ErrorKind::usage,
         "metrics: {}.threshold: the data's targets are {}, whose prediction is the class with the "
         "largest output: expected no threshold, found {}",
         variant.type, text_of(context.targets), fmt::join(*thresholds, ", "));
  }
  const auto count = static_cast<std::int64_t>(thresholds->size());
  if (count == 1 || count == context.classes) return;
  fail(ErrorKind::usage,
       "metrics: {}.threshold: expected one number, or {}, one for each output of the model, found "
       "{}",
       variant.type, context.classes, count);
}

template <Score kScore>
Metric make_scores(const Variant& variant, const MetricContext& context) {
  check_thresholds(variant, context);
  const auto& options = variant.as<ThresholdOptions>();
  const std::vector<double> thresholds = options.threshold.value_or(std::vector<double>());
  Metric metric = averaged_metric(
      options.average,
      [thresholds](const Measured& of) { return scores_of(of, thresholds, kScore); },
      [thresholds](const Measured& of) { return micro_score(of, thresholds, kScore); });
  metric.needs_outputs = context.targets == TargetKind::multi_hot;
  return metric;
}

ObjectTable threshold_table(const char* name, const char* doc) {
  using S = ThresholdOptions;
  return object_table<S>(name, doc,
                         {field("average", &S::average, kAverageDoc),
                          field("threshold", &S::threshold,
                                "For multi_hot targets: an output (with bce_with_logits, its "
                                "sigmoid) above the threshold predicts its label. One number for "
                                "all outputs, or one for each; 0.5 if not given.")
                              .range(-1e9, 1e9)
                              .items(1, 1'000'000)
                              .or_one()});
}

template <Score kScore>
MetricKind threshold_kind(const ObjectTable& table) {
  static const TargetKinds kinds = {TargetKind::class_index, TargetKind::soft_labels,
                                    TargetKind::multi_hot};
  return {&table,
          Direction::max,
          kinds,
          table.name,
          nullptr,
          &make_scores<kScore>,
          [](const Variant& options) {
            return std::string(name_of(options.as<ThresholdOptions>().average));
          }};
}

}  // namespace

MetricKind f1_metric() {
  static const ObjectTable table =
      threshold_table("f1",
                      "`macro_f1`: 2 TP / (2 TP + FP + FN), scikit-learn's f1_score with "
                      "zero_division=0. Only in evaluations.");
  return threshold_kind<&LabelCounts::f1>(table);
}

MetricKind precision_metric() {
  static const ObjectTable table =
      threshold_table("precision",
                      "`macro_precision`: TP / (TP + FP), scikit-learn's precision_score with "
                      "zero_division=0. Only in evaluations.");
  return threshold_kind<&LabelCounts::precision>(table);
}

MetricKind recall_metric() {
  static const ObjectTable table =
      threshold_table("recall",
                      "`macro_recall`: TP / (TP + FN), scikit-learn's recall_score with "
                      "zero_division=0. Only in evaluations.");
  return threshold_kind<&LabelCounts::recall>(table);
}

std::vector<double> thresholds_of(const std::vector<Variant>& metrics) {
  for (const Variant& metric : metrics) {
    if (metric.type != "f1" && metric.type != "precision" && metric.type != "recall") continue;
    const auto& threshold = metric.as<ThresholdOptions>().threshold;
    if (threshold) return *threshold;
  }
  return {};
}

}  // namespace dpt
