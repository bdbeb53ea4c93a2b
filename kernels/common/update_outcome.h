// Outcome of a step's update, and the gradient's norm and clip factor. They are computed from the
// step's values in device memory. Written once for every backend.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/backend.h"
#include "kernels/base/host_device.h"

namespace dpt {

DPT_HOST_DEVICE inline bool is_finite(float x) {
  return x - x == 0;
}

/// Returns the outcome of this step's update, before anything is written. It depends only on values
/// that are the same on every rank.
DPT_HOST_DEVICE inline UpdateOutcome decide_update(const StepScalars& now,
                                                   const StepMetrics& metrics,
                                                   const UpdateGuard& guard) {
  // Another thread may set the guard in this step while this thread reads it.
  const std::int64_t bad_step = guard.bad_step;
  if (bad_step != 0 && bad_step < now.step) return UpdateOutcome::withheld;
  const bool is_good = is_finite(metrics.loss_sum) && is_finite(metrics.weight) &&
                       now.finite != 0 && metrics.bad_statistic == 0 && !metrics.is_weightless();
  if (!is_good) return UpdateOutcome::refused;
  return UpdateOutcome::applied;
}

/// Stores an outcome other than `applied` for the host and for the next steps. Several threads may
/// call it in a step, all with the same values.
DPT_HOST_DEVICE inline void report_outcome(UpdateOutcome outcome, const StepScalars& now,
                                           StepMetrics& metrics, UpdateGuard& guard) {
  metrics.outcome = static_cast<float>(outcome);
  metrics.bad_norm = now.grad_norm;
  if (outcome != UpdateOutcome::withheld) guard.bad_step = now.step;
}

/// Sets grad_norm, clip and finite of `s` from the sum of all squares, like
/// torch.nn.utils.clip_grad_norm_: clip = min(1, max_norm / (norm + 1e-6)), or 1 if max_norm is 0.
DPT_HOST_DEVICE inline void set_norm_and_clip(StepScalars& s, double sum_of_squares) {
  s.grad_norm = static_cast<float>(sqrt(sum_of_squares));
  s.clip = 1;
  // The squares of floats do not overflow a double, so the sum is finite if all gradients are
  // finite.
  s.finite = sum_of_squares - sum_of_squares == 0 ? 1.0F : 0.0F;
  if (s.max_norm > 0) {
    // A NaN norm makes the factor NaN, as in PyTorch, so that the step shows the fault.
    const float factor = s.max_norm / (s.grad_norm + 1e-6F);
    s.clip = factor > 1 ? 1.0F : factor;
  }
}

/// Returns `x` limited to [-limit, limit]. NaN stays NaN.
DPT_HOST_DEVICE inline float clipped(float x, float limit) {
  return x > limit ? limit : x < -limit ? -limit : x;
}

}  // namespace dpt
