// Distances between predictions and targets, for losses with Loss::has_errors.
#include <cmath>

#include "engine/metrics/kinds.h"

namespace dpt {
namespace {

struct ErrorOptions {};
struct R2Options {};

void need_errors(const char* name, const MetricContext& context) {
  if (context.has_errors) return;
  fail(ErrorKind::usage,
       "metrics: {} is the distance of outputs from their targets: expected loss: mse, l1, "
       "smooth_l1 or bce_with_logits, found {}",
       name, context.loss);
}

Metric make_absolute(const Variant&, const MetricContext& context) {
  need_errors("mean_absolute_error", context);
  Metric metric;
  metric.sums = {{SampleSum::absolute_error}};
  metric.value = [](const Measured& of) { return of.sums[0] / of.samples; };
  return metric;
}

/// Returns Measured::target_spread of one-hot targets. For each output, the sum of the targets and
/// the sum of their squares both equal the number of samples with that label.
double one_hot_spread(const Measured& of) {
  std::vector<double> counts(static_cast<std::size_t>(of.classes), 0.0);
  for (const std::int32_t label : of.labels) counts[label] += 1;
  double total = 0;
  for (const double count : counts) total += count - count * count / of.samples;
  return total;
}

Metric make_r2(const Variant&, const MetricContext& context) {
  need_errors("r2", context);
  Metric metric;
  metric.in_training = false;
  metric.sums = {{SampleSum::squared_error}};
  metric.value = [](const Measured& of) {
    const double total = of.target_spread ? of.target_spread() : one_hot_spread(of);
    const double residual = of.sums[0] * static_cast<double>(of.classes);
    return total > 0 ? 1.0 - residual / total : NAN;
  };
  return metric;
}

}  // namespace

MetricKind mean_absolute_error_metric() {
  static const ObjectTable table = object_table<ErrorOptions>(
      "mean_absolute_error",
      "`mean_absolute_error`: the mean of |prediction - target| over samples and outputs, for "
      "losses of values; the prediction of bce_with_logits is the sigmoid of the output.",
      {});
  return {&table, Direction::min, all_targets(), "mean_absolute_error", nullptr, &make_absolute};
}

MetricKind r2_metric() {
  static const ObjectTable table = object_table<R2Options>(
      "r2",
      "`r2`: the coefficient of determination, 1 - squared errors / variance of the targets, with "
      "both summed over all outputs (scikit-learn's r2_score and torchmetrics' R2Score with "
      "variance_weighted, not uniform_average). Only in evaluations.",
      {});
  return {&table, Direction::max, all_targets(), "r2", nullptr, &make_r2};
}

}  // namespace dpt
