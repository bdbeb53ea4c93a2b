// Reaction to a non-finite step: train.on_divergence in a config.
//
// A step is bad when its loss or a value of its gradient is NaN or infinite, or when a weight or
// optimizer state is after its update. The device itself keeps a bad step, and all steps queued
// after it, from changing anything (UpdateGuard), so that every policy starts from the state right
// before that step:
//   halt      the run ends with ErrorKind::diverged; the report names step, layer and samples.
//   skip      the step updates nothing; the next one is trained.
//   rollback  the run starts again from its last regular checkpoint, or its start, as a resumed run
//             does, with the learning rate multiplied by lr_factor.
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

/// Returns the state to which a run that begins at `start` goes back as long as it has no later
/// one: RunState::rollback_step, as the file of that step (one of StartingPoint::ancestors, or next
/// to the one of `start`), or the fresh start; `start` itself where that file is gone (`warn` then
/// gets a line).
StartingPoint rollback_origin(const Job& job, const StartingPoint& start,
                              const std::function<void(const std::string&)>& warn);

/// One rank's handler. Every rank makes the same calls.
class Divergence {
 public:
  /// Only rank 0 writes to `folder`, `log` and `progress`. `last_good`, which the ranks of a
  /// process share, is the rollback_origin of `start`; until the first rollback only in rank 0's
  /// process. All must outlive it.
  Divergence(const Job& job, const StartingPoint& start, StartingPoint& last_good, Backend& backend,
             Communicator& communicator, Replica& replica, Stepper& stepper, RunFolder& folder,
             RunLog& log, Progress& progress);

  /// The present state is one that a regular checkpoint holds, whether or not its file can be
  /// written: rollbacks go back to it once a step after it was good (its weights alone do not show
  /// that the next loss will be finite). REQUIRES: drained.
  void remember();

  /// The steps of the best checkpoints that belong to the states which a rollback may go back to:
  /// they are needed even when a later checkpoint is the best. Empty with other policies. Only rank
  /// 0 knows them.
  std::vector<std::int64_t> best_steps() const;

  /// Skips the step, or returns true when the run has to start again from `last_good`, on every
  /// rank alike; or throws ErrorKind::diverged on rank 0 and ErrorKind::peer on the others.
  /// REQUIRES: no save under way, unless the run halts.
  bool handle(const BadStep& bad);

 private:
  void skip(const BadStep& bad);
  /// Throws ErrorKind::data where a step without a sample that counts ends an epoch without any.
  void check_that_some_count(const BadStep& bad);
  /// On rank 0: takes the last good state, for a lower learning rate, and leaves in the folder what
  /// led to it.
  StartingPoint go_back(const BadStep& bad);
  /// Replaces `last_good_` by a candidate that a good step followed.
  void promote();
  /// Ends the run. `limit` says which limit was reached, if one was; `lr_is_spent`, that it is the
  /// learning rate, which cannot become smaller.
  [[noreturn]] void halt(const BadStep& bad, const std::string& limit, bool lr_is_spent = false);
  /// Leaves in the run folder what led to `to`, and `to` with a best checkpoint that exists.
  void settle_folder(RunState& to);
  /// On rank 0; empty on the others.
  Diagnosis look(const BadStep& bad);

  const Job& job_;
  const StartingPoint& start_;
  StartingPoint& last_good_;
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
  /// The last state that was remembered, until a good step follows; on rank 0.
  std::optional<StartingPoint> candidate_;
};

}  // namespace dpt
