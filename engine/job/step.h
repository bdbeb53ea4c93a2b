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

/// Question asked between micro-batches, on every rank: true to leave an evaluation, or to give up
/// a step.
using StopQuestion = std::function<bool()>;

/// Receiver of the number of evaluated samples, an estimate if several ranks share them. Called by
/// the first rank of a process after each of its micro-batches.
using EvaluationProgress = std::function<void(std::int64_t done)>;

/// The inputs of a step.
struct StepPlan {
  std::int64_t step = 0;     ///< counted from 1
  std::int64_t skipped = 0;  ///< earlier steps that made no update (engine/training/divergence.h)
  std::int64_t epoch = 0;    ///< counted from 0: key of the augmentation
  std::int64_t global_batch = 0;  ///< samples over all ranks
  double lr = 0;
  bool vote_stop = false;
  /// Null if the step is never given up. Asked after each micro-batch but the last, by devices
  /// whose calls have completed when they return.
  const StopQuestion* gives_up = nullptr;
  bool want_grad_norm = false;
  /// Tell where the device's time goes: in each step of a device whose calls have run when they
  /// return; of one that queues, where it costs launches, in those with want_grad_norm.
  bool time_phases = false;
};

/// By StepPhase.
using PhaseSeconds = std::array<double, kStepPhases>;

/// Returns what a rank that gives up a step leaves in place of its sums: no update is written, and
/// every rank sees why.
inline StepMetrics given_up_metrics() {
  StepMetrics metrics;
  metrics.loss_sum = std::numeric_limits<float>::quiet_NaN();
  metrics.stop_votes = std::numeric_limits<float>::infinity();
  return metrics;
}

/// The numbers of one step, of the whole batch: equal on every rank.
struct StepResult {
  std::int64_t step = 0;  ///< counted from 1 over the whole run
  StepMetrics metrics;
  double lr = 0;
  std::optional<double> grad_norm;  ///< before clipping; when it was asked for
  /// Floats of the measurements, where results are logged, for Measurements::take.
  std::vector<float> measured;
  std::optional<PhaseSeconds> phases;  ///< phases of this rank's device, if they were timed
  UpdateOutcome outcome = UpdateOutcome::applied;

  /// Returns true if a rank was asked to stop during the step: nothing was updated.
  bool is_given_up() const { return metrics.stop_votes == std::numeric_limits<float>::infinity(); }
};

}  // namespace dpt
