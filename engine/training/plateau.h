// Decides when the schedule `plateau` lowers the learning rate. All ranks decide alike, because
// they have the same results. The schedule's memory is in the RunState, so a resumed run continues
// as if it had not stopped.
#pragma once

#include <optional>

#include "engine/checkpoints/checkpoint.h"
#include "engine/config/train_spec.h"

namespace dpt {

/// A reduction that takes effect with the next step.
struct LrReduction {
  double from = 0, to = 0;  ///< the schedule's learning rate
  double value = 0;         ///< the monitored value, smoothed
  std::optional<double> best;
  std::int64_t evaluations = 0;  ///< number of evaluations without an improvement on `best`
};

/// Takes the results of an epoch (RunState::val_...) into account. Returns the reduction, if any.
/// Does nothing for other schedules, or if there are no results.
std::optional<LrReduction> note_plateau(const TrainSpec& spec, double base_lr,
                                        std::int64_t steps_per_epoch, RunState& state);

}  // namespace dpt
