// Reaction to a non-finite step: train.on_divergence in a config.
//
// A step is bad if its loss or a value of its gradient is NaN or infinite, or if its update makes a
// weight or a value of the optimizer state NaN or infinite. The device itself keeps a bad step, and
// all steps queued after it, from changing anything (UpdateGuard). So every policy starts from the
// state right before that step, unless only the update reveals the problem:
//   halt      the run ends with ErrorKind::diverged; the report names step, layer and samples.
//   skip      the step updates nothing; the next one is trained.
//   rollback  the run restarts from its last regular checkpoint, or its start, as a resumed run
//             does, with the learning rate multiplied by lr_factor.
// A step in which no sample counts in the loss (its mean is 0 / 0) is skipped under every policy.
//
// All of these decisions follow from numbers that every rank has. So all ranks act alike, and exact
// mode gives the same bits on any number of them. The counters are part of a checkpoint, so a
// resumed run acts like an uninterrupted one.
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

/// Returns the state to which a run that begins at `start` rolls back until it has a later good
/// state. This is the checkpoint of step RunState::rollback_step (one of StartingPoint::ancestors,
/// or next to the file of `start`), or the fresh start. If that file is missing, warns with `warn`
/// and returns `start`.
StartingPoint rollback_origin(const Job& job, const StartingPoint& start,
                              const std::function<void(const std::string&)>& warn);

/// One rank's handler. Every rank makes the same calls.
class Divergence {
 public:
  /// Only rank 0 writes to `folder`, `log` and `progress`. The ranks of a process share
  /// `last_good`, which begins as the rollback_origin of `start`. Until the first rollback it is
  /// set only in rank 0's process. All arguments must outlive the object.
  Divergence(const Job& job, const StartingPoint& start, StartingPoint& last_good, Backend& backend,
             Communicator& communicator, Replica& replica, Stepper& stepper, RunFolder& folder,
             RunLog& log, Progress& progress);

  /// Remembers the current state as one to which a rollback may return. Call it for each regular
  /// checkpoint, even if its file cannot be written. Rollbacks return to the state only after a
  /// later step was good: finite weights alone do not ensure that the next loss is finite.
  /// REQUIRES: drained.
  void remember();

  /// Returns the steps of the best checkpoints of those states to which a rollback may return.
  /// These checkpoints are needed even if a later one is the best. Empty with other policies and on
  /// ranks other than 0.
  std::vector<std::int64_t> best_steps() const;

  /// Handles a bad step. Returns false if the step is skipped, or true if the run has to restart
  /// from `last_good`; all ranks return the same. Otherwise throws: ErrorKind::diverged on rank 0,
  /// and ErrorKind::peer on the others. REQUIRES: no save under way, unless the run halts.
  bool handle(const BadStep& bad);

 private:
  void skip(const BadStep& bad);
  /// Throws ErrorKind::data if this step ends an epoch in which no sample counts.
  void check_that_some_count(const BadStep& bad);
  /// Returns the last good state with a lower learning rate. Moves later checkpoints and log lines
  /// in the folder aside. Called on rank 0.
  StartingPoint go_back(const BadStep& bad);
  /// Replaces `last_good_` by the candidate if a good step has followed it.
  void promote();
  /// Ends the run. `limit` names the limit that was reached, if any. `lr_is_spent` means that this
  /// limit is the learning rate, which cannot become smaller.
  [[noreturn]] void halt(const BadStep& bad, const std::string& limit, bool lr_is_spent = false);
  /// Moves checkpoints and log lines after `to` aside. Sets the best checkpoint of `to` to one that
  /// exists, or unsets it.
  void settle_folder(RunState& to);
  /// Diagnoses the step on rank 0; returns an empty diagnosis on the others.
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
  std::int64_t weightless_ = 0;  ///< steps of this process in which no sample counts
  bool writes_;
  std::int64_t counted_in_ = -1;  ///< latest epoch with a bad step some of whose samples count
  /// The last remembered state, until a good step follows it; set on rank 0 only.
  std::optional<StartingPoint> candidate_;
};

}  // namespace dpt
