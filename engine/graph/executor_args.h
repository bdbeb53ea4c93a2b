// The memory that one call of an Executor uses.
#pragma once

#include "kernels/base/types.h"

namespace dpt {

/// Buffers of a pass. Parameters and gradients are the flat buffers of the Plan.
struct ExecutorBuffers {
  DevPtr params;
  DevPtr params16;  ///< the same in bf16; only for a bf16 plan
  DevPtr grads;     ///< null for evaluation; StepMetrics follow the gradients
  DevPtr arena;     ///< at least arena_bytes()
  DevPtr kept;      ///< at least kept_bytes(), for this micro-batch alone; null if kept_bytes() is
                    ///< 0
  /// Folded parameters of an EvaluationPlan, in f32 and bf16.
  DevPtr folded{}, folded16{};
  /// PhaseTimes, in which a training pass records the ends of forward and backward; may be null.
  DevPtr times{};
  /// True if the pass may use branch 1 of the device's queue. REQUIRES: the queue is not forked.
  bool may_fork = false;
};

/// A batch on the device, as raw samples (see InputArgs).
struct DeviceBatch {
  DevPtr raw, labels;     ///< indexed by slots
  DevPtr slots, ids;      ///< `batch` entries each
  DevPtr scalars;         ///< StepScalars
  DevPtr targets{};       ///< see LossArgs
  DevPtr boxes{}, mix{};  ///< see InputArgs; null if unused
  /// Slots in `labels` and `targets` for mixed samples. If null, samples use their own slots.
  DevPtr target_slots{};
};

/// Outputs of an evaluation, per sample; any may be null.
struct EvalOutputs {
  DevPtr sample_loss, prediction;
  DevPtr metrics;      ///< StepMetrics, overwritten
  DevPtr sample_sums;  ///< see LossArgs
  DevPtr outputs{};    ///< see LossArgs
};

/// Numbers of values per channel and of samples over which the merged statistics of an operation
/// are taken (see OpArgs).
struct MergedCount {
  double values = 0;
  double samples = 0;
};

}  // namespace dpt
