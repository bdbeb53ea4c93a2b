// Fraction of samples for which the output of the label is the largest, or among the k largest. For
// multi-hot targets, the fraction of correct outputs.
#include "engine/metrics/kinds.h"

namespace dpt {
namespace {

struct AccuracyOptions {};
struct TopKOptions {
  std::int64_t k = 5;
};

Metric share_of(std::int32_t k) {
  Metric metric;
  metric.sums = {{SampleSum::top_k, k}};
  metric.value = [](const Measured& of) { return of.sums[0] / of.samples; };
  return metric;
}

Metric make_accuracy(const Variant&, const MetricContext& context) {
  Metric metric = share_of(1);
  if (context.targets == TargetKind::multi_hot) {
    metric.sums = {{SampleSum::matches}};
    // Divide only once, so that 171 correct outputs of 180 give the same number as parsing "0.95"
    // does.
    metric.value = [](const Measured& of) {
      return of.sums[0] / (of.samples * of.matches_per_sample);
    };
  }
  return metric;
}

Metric make_top_k(const Variant& variant, const MetricContext& context) {
  const std::int64_t k = variant.as<TopKOptions>().k;
  if (k > context.classes) {
    fail(ErrorKind::usage,
         "metrics: top_k: expected k from 1 to {} (the model has {} outputs), found {}",
         context.classes, context.classes, k);
  }
  return share_of(static_cast<std::int32_t>(k));
}

}  // namespace

MetricKind accuracy_metric() {
  static const ObjectTable table = object_table<AccuracyOptions>(
      "accuracy",
      "`accuracy`: the fraction of samples whose label's output is the largest (the first one wins "
      "a tie); for soft labels, the label is the most probable class. For multi_hot targets: the "
      "fraction of outputs whose prediction is on the target's side of 0.5 (torchmetrics' "
      "MultilabelAccuracy with average=micro). It is always measured, except for values, which "
      "have no accuracy.",
      {});
  static const TargetKinds kinds = {TargetKind::class_index, TargetKind::soft_labels,
                                    TargetKind::multi_hot};
  return {&table, Direction::max, kinds, "accuracy", nullptr, &make_accuracy};
}

MetricKind top_k_metric() {
  static const ObjectTable table = object_table<TopKOptions>(
      "top_k",
      "`accuracy_topK` (accuracy_top5 for k: 5): the fraction of samples whose label's output is "
      "one of the k largest.",
      {field("k", &TopKOptions::k, "Number of largest outputs that count.").range(1, 1'000'000)});
  return {&table,
          Direction::max,
          labelled_targets(),
          "accuracy_top",
          [](const Variant& options) { return fmt::format("{}", options.as<TopKOptions>().k); },
          &make_top_k};
}

}  // namespace dpt
