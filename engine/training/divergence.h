// What follows a step that is not finite: train.on_divergence in a config.
//
// A step is bad when its loss or a value of its gradient is NaN or infinite, or when a weight or
// optimizer state is after its update. The device itself keeps a bad step, and all steps queued
// after it, from changing anything (UpdateGuard), so that every policy starts from the state right
// before that step:
//   halt      the run ends with ErrorKind::diverged; the report names step, layer and samples.
//   skip      the step updates nothing; the next one is trained.
//   rollback  the run goes back to its last regular checkpoint, or its start, with the learning
//             rate multiplied by lr_factor.
// A step of which no sample counts in the loss (its mean is 0 / 0) is skipped whatever the policy.
// All of it follows from numbers that every rank has, so all ranks do the same, in exact mode with
// the same bits on any number of them; and the counters are part of a checkpoint, so a resumed run
// does what the undisturbed one does.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/job/starting_point.h"
#include "engine/run/progress.h"
#include "engine/run/run_folder.h"
#include "engine/run/run_log.h"
#include "engine/training/diagnosis.h"

namespace dpt {

/// Where a run that begins at `start` goes back to as long as it has no later step to go back to:
/// RunState::rollback_step, as the file of that step (one of StartingPoint::ancestors, or next to
/// the one of `start`), or the fresh start; `start` itself where that file is gone (`warn` then
/// gets a line).
StartingPoint rollback_origin(const Job& job, const StartingPoint& start,
                              const std::function<void(const std::string&)>& warn);

/// One rank's handler. Every rank makes the same calls.
class Divergence {
 public:
  /// Only rank 0 writes to `folder`, `log` and `progress`. `origin` is the rollback_origin. All
  /// must outlive it.
  Divergence(const Job& job, const StartingPoint& origin, Backend& backend,
             Communicator& communicator, Replica& replica, Stepper& stepper, RunFolder& folder,
             RunLog& log, Progress& progress);

  /// Called first, with what the run begins with.
  void begin(const StartingPoint& start);
  /// The present state is one that a regular checkpoint holds, whether or not its file can be
  /// written: rollbacks go back to it once a step after it was good (its weights alone do not show
  /// that the next loss will be finite). REQUIRES: drained.
  void remember();

  /// The steps of the best checkpoints that belong to the states which a rollback may go back to:
  /// they are needed even when a later checkpoint is the best. Empty with other policies.
  std::vector<std::int64_t> best_steps() const;

  /// Leaves stepper and replica where training goes on, or throws ErrorKind::diverged on rank 0 and
  /// ErrorKind::peer on the others. True when the run has gone back, to the stepper's present step.
  /// REQUIRES: no save under way, unless the run halts.
  bool handle(const BadStep& bad);

 private:
  void skip(const BadStep& bad);
  /// Throws ErrorKind::data where a step without a sample that counts ends an epoch without any.
  void check_that_some_count(const BadStep& bad);
  void roll_back(const BadStep& bad);
  /// A candidate that a good step followed replaces `good_`.
  void promote();
  /// Ends the run. `limit` says which limit was reached, if one was; `lr_is_spent`, that it is the
  /// learning rate, which cannot become smaller.
  [[noreturn]] void halt(const BadStep& bad, const std::string& limit, bool lr_is_spent = false);
  /// Leaves in the run folder what led to `to`, and `to` with a best checkpoint that is there.
  void settle_folder(const RunState& now, RunState& to);
  /// On rank 0; empty on the others.
  Diagnosis look(const BadStep& bad);

  const Job& job_;
  const StartingPoint& origin_;
  Backend& backend_;
  Communicator& communicator_;
  Replica& replica_;
  Stepper& stepper_;
  RunFolder& folder_;
  RunLog& log_;
  Progress& progress_;
  std::int64_t weightless_ = 0;  ///< steps of this process of which no sample counts
  bool writes_;
  std::int64_t counted_in_ = -1;  ///< the latest epoch with a bad step whose samples count
  /// Later than origin_: the last good one that was remembered, and a candidate for it. Their
  /// weights and optimizer state are on rank 0 only.
  std::optional<StartingPoint> good_, candidate_;
};

}  // namespace dpt
