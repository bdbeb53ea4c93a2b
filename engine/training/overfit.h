// dpt train --overfit N: trains on the same N batches until their loss is near zero, or the least
// that their targets allow. A model, a loss or a learning rate that cannot learn even these by
// heart cannot learn a data set.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "engine/job/starting_point.h"
#include "engine/training/trainer.h"

namespace dpt {

/// `job` cut down to the first `batches` of its first epoch: without shuffling, the training
/// transforms (those of evaluation take their place), the schedule and label smoothing. Dropout,
/// weight decay and frozen parameters stay: they belong to what is tried. Throws ErrorKind::usage
/// when an epoch has fewer batches.
Job overfit_job(Job job, std::int64_t batches);

struct OverfitResult {
  std::int64_t steps = 0;
  double first_loss = 0;             ///< mean over the first batch, before any update
  double least = 0;                  ///< that the loss can be, with these targets
  double target = 0;                 ///< value to which the loss must fall
  double first_round = 0, loss = 0;  ///< means over the batches, in the first and the last round
  std::optional<double> accuracy;    ///< in the last round; none where the targets have none
  StopReason stop = StopReason::none;

  bool has_fallen() const { return loss <= target; }
};

/// Trains on an overfit_job, round after round, until the loss has fallen or `max_steps` are done;
/// saves nothing. `on_round` is called on rank 0 after each. Throws BadStep when it diverges.
OverfitResult overfit(const Job& job, const StartingPoint& start, std::int64_t max_steps,
                      const std::function<StopReason()>& stop_request,
                      const std::function<void(const OverfitResult&)>& on_round);

/// Why it may not have fallen, as sentences for a person. REQUIRES: !result.has_fallen().
std::string overfit_advice(const Job& job, const OverfitResult& result);

}  // namespace dpt
