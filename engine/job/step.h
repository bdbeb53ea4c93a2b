// Inputs and results of a step.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "kernels/flat.h"
#include "kernels/step_clock.h"

namespace dpt {

/// Function that every rank calls between micro-batches. If it returns true, an evaluation ends or
/// a step is given up.
using StopQuestion = std::function<bool()>;

/// Function that takes the number of samples evaluated so far. The number is an estimate if several
/// ranks share the samples. The first rank of a process calls it after each of its micro-batches.
using EvaluationProgress = std::function<void(std::int64_t done)>;

/// The inputs of a step.
struct StepPlan {
  std::int64_t step = 0;     ///< counted from 1
  std::int64_t skipped = 0;  ///< earlier steps that made no update (engine/training/divergence.h)
  std::int64_t epoch = 0;    ///< counted from 0; random augmentation depends on it
  std::int64_t global_batch = 0;  ///< samples over all ranks
  double lr = 0;
  bool vote_stop = false;
  /// Asked after each micro-batch but the last, by devices whose calls are synchronous. Null if the
  /// step is never given up.
  const StopQuestion* gives_up = nullptr;
  bool want_grad_norm = false;
  /// True if the device times the phases of the step. Devices whose calls are synchronous time
  /// every step. On a device with a queue, timing costs launches, so this is set only with
  /// want_grad_norm.
  bool time_phases = false;
};

/// Seconds that each StepPhase took.
using PhaseSeconds = std::array<double, kStepPhases>;

/// Returns the metrics that a rank contributes instead of its sums when it gives up a step. They
/// prevent the update and tell every rank the reason.
inline StepMetrics given_up_metrics() {
  StepMetrics metrics;
  metrics.loss_sum = std::numeric_limits<float>::quiet_NaN();
  metrics.stop_votes = std::numeric_limits<float>::infinity();
  return metrics;
}

/// Results of one step for the whole batch, equal on every rank.
struct StepResult {
  std::int64_t step = 0;  ///< counted from 1 over the whole run
  StepMetrics metrics;
  double lr = 0;
  std::optional<double> grad_norm;  ///< norm before clipping, if it was requested
  /// Floats for Measurements::take; only on the replica whose results are logged.
  std::vector<float> measured;
  std::optional<PhaseSeconds> phases;  ///< phases of this rank's device, if they were timed
  UpdateOutcome outcome = UpdateOutcome::applied;

  /// Returns true if a rank gave up the step because it was asked to stop. Nothing was updated.
  bool is_given_up() const { return metrics.stop_votes == std::numeric_limits<float>::infinity(); }
};

}  // namespace dpt
