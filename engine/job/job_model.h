// The model of a Job: its network, its loss and its metrics.
#pragma once

#include <optional>

#include "engine/graph/evaluation_plan.h"
#include "engine/graph/plan.h"
#include "engine/losses/loss.h"
#include "engine/metrics/metric.h"

namespace dpt {

struct JobModel {
  Plan plan;
  EvaluationPlan evaluation;  ///< made from `plan`
  Loss loss;
  std::optional<Loss> mixed_loss;  ///< loss of training batches, if they are mixed
  MetricSet metrics;
  /// True if evaluations keep all outputs of each sample (`keeps_outputs`), or only the output of
  /// its prediction (`keeps_confidence`).
  bool keeps_outputs = false, keeps_confidence = false;

  /// Returns true if evaluations gather the outputs of all samples, for the caller or for metrics.
  bool gathers_outputs() const { return keeps_outputs || metrics.needs_outputs(); }
  const Loss& train_loss() const { return mixed_loss ? *mixed_loss : loss; }
};

}  // namespace dpt
