// dpt train --overfit N: trains on the same N batches until their loss is near zero, or near the
// minimum that their targets allow. A model, a loss or a learning rate that cannot memorise even
// these batches cannot learn a data set.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "engine/job/starting_point.h"
#include "engine/training/trainer.h"

namespace dpt {

/// Returns `job` restricted to the first `batches` batches of its first epoch, without shuffling,
/// learning rate schedule and label smoothing. The transforms of evaluation replace those of
/// training. Dropout, weight decay and frozen parameters stay, because they are part of what is
/// tested. Throws ErrorKind::usage if an epoch has fewer batches.
Job overfit_job(Job job, std::int64_t batches);

struct OverfitResult {
  std::int64_t steps = 0;
  double first_loss = 0;             ///< mean over the first batch, before any update
  double least = 0;                  ///< minimum loss with these targets
  double target = 0;                 ///< value to which the loss must fall
  double first_round = 0, loss = 0;  ///< means over the batches, in the first and the last round
  std::optional<double> accuracy;    ///< accuracy in the last round; empty if the targets have none
  StopReason stop = StopReason::none;

  bool has_fallen() const { return loss <= target; }
};

/// Trains on an overfit_job, round after round, until the loss has fallen or `max_steps` steps are
/// done. Saves nothing. Calls `on_round` on rank 0 after each round. Throws BadStep if it diverges.
OverfitResult overfit(const Job& job, const StartingPoint& start, std::int64_t max_steps,
                      const std::function<StopReason()>& stop_request,
                      const std::function<void(const OverfitResult&)>& on_round);

/// Returns possible reasons why the loss has not fallen, as sentences for the user. REQUIRES:
/// !result.has_fallen().
std::string overfit_advice(const Job& job, const OverfitResult& result);

}  // namespace dpt
