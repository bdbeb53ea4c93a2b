// One function per kind of metric, and the list of them.
#pragma once

#include "engine/metrics/metric.h"

namespace dpt {

MetricKind accuracy_metric();
MetricKind top_k_metric();
MetricKind per_class_accuracy_metric();
MetricKind mean_absolute_error_metric();
MetricKind r2_metric();
MetricKind f1_metric();
MetricKind precision_metric();
MetricKind recall_metric();
MetricKind auroc_metric();
MetricKind average_precision_metric();

/// Returns all metrics, in the order of docs/reference/config.md.
inline std::vector<MetricKind> all_metrics() {
  return {accuracy_metric(),
          top_k_metric(),
          per_class_accuracy_metric(),
          mean_absolute_error_metric(),
          r2_metric(),
          f1_metric(),
          precision_metric(),
          recall_metric(),
          auroc_metric(),
          average_precision_metric()};
}

}  // namespace dpt
