// The share of samples whose label's output is the largest, or among the k largest.
#include "engine/metrics/metric.h"

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

template <>
MetricKind metric_kind<class Accuracy>() {
  static const ObjectTable table = object_table<AccuracyOptions>(
      "accuracy",
      "`accuracy`: the fraction of samples whose label's output is the largest (the first one wins "
      "a tie). It is always measured.",
      {});
  return {&table, Direction::max, "accuracy", nullptr,
          [](const Variant&, const MetricContext&) { return share_of(1); }};
}

template <>
MetricKind metric_kind<class TopK>() {
  static const ObjectTable table = object_table<TopKOptions>(
      "top_k",
      "`accuracy_topK`, for k: 5 accuracy_top5: the fraction of samples whose label's output is "
      "one of the k largest.",
      {field("k", &TopKOptions::k, "How many.").range(1, 1'000'000)});
  return {&table, Direction::max, "accuracy_top",
          [](const Variant& options) { return fmt::format("{}", options.as<TopKOptions>().k); },
          &make_top_k};
}

}  // namespace dpt
