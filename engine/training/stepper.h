// Walks through a run step by step. It is the only code that maps (epoch, position) to the next
// batch. A step with a non-finite loss, gradient or weight ends the walk with an exception
// (BadStep). engine/training/divergence.h then decides how the run continues.
#pragma once

#include <functional>
#include <string>

#include "engine/checkpoints/checkpoint.h"
#include "engine/collectives/communicator.h"
#include "engine/data/loader.h"
#include "engine/replica/replica.h"
#include "kernels/base/error.h"

namespace dpt {

/// A step that must not count. Either its loss or gradient was non-finite, and nothing was updated
/// (UpdateOutcome::refused), or its update produced non-finite weights or optimizer state
/// (UpdateOutcome::broken). Thrown on every rank alike; the Stepper then stands right before it.
class BadStep : public Error {
 public:
  BadStep(const StepResult& result, std::int64_t epoch, Range batch);

  const StepResult& result() const { return result_; }
  std::int64_t epoch() const { return epoch_; }  ///< counted from 0
  const Range& batch() const { return batch_; }  ///< positions in the epoch's order
  double loss() const;                           ///< mean over the batch
  /// Returns true if none of the step's samples counts in the loss. Nothing can be learned from
  /// such a step, but it is not a divergence.
  bool is_weightless() const { return result_.metrics.is_weightless(); }
  /// Returns what is non-finite as a clause: "the loss is nan".
  std::string what_is_wrong() const;

 private:
  StepResult result_;
  std::int64_t epoch_;
  Range batch_;
};

/// One rank's walk. Every rank makes the same calls. `step` and `drain` throw BadStep.
class Stepper {
 public:
  /// Called on every rank with the result of every step, in order. A result may arrive up to
  /// Placement::steps_ahead steps late.
  using OnResult = std::function<void(const StepResult&)>;

  /// `ledger`, if not null, records how this thread spends its time.
  Stepper(const Job& job, Replica& replica, Communicator& communicator, const RunState& start,
          OnResult on_result, Ledger* ledger = nullptr);

  /// Queues the next step of the current epoch. REQUIRES: !epoch_done().
  void step(bool vote_stop, bool want_grad_norm);
  /// Lets this rank give up a later step: `question` is asked on its thread between two
  /// micro-batches, and if it returns true, the step ends there. The rank then also votes to stop.
  /// Has no effect on devices with a queue.
  void may_give_up(StopQuestion question) { gives_up_ = std::move(question); }
  /// Returns true if a rank has given up a step. Every rank then has the state before that step,
  /// and no step may follow.
  bool has_given_up() const { return has_given_up_; }
  /// Returns true if all steps of the current epoch are queued.
  bool epoch_done() const { return next_step_ == job_.data.steps_per_epoch; }
  /// Waits for all queued steps and passes on their results. Throws ErrorKind::peer if steps were
  /// lost: overlapped sums were then aborted, and the weights and the optimizer's state are not
  /// those of any step.
  void drain();
  /// Closes the epoch and resets its sums. REQUIRES: epoch_done().
  void finish_epoch();

  /// Continues after a BadStep that left the weights unchanged. If `is_counted`, the step counts
  /// towards the limit of consecutive bad steps in train.on_divergence.
  void skip_step(bool is_counted);
  /// Continues from `state`. The caller sets the replica's weights. REQUIRES: no result is pending,
  /// as after drain() or a BadStep.
  void go_to(const RunState& state);

  /// Returns the counters and sums. The sums are complete only after drain().
  const RunState& state() const { return state_; }
  RunState& state() { return state_; }
  /// Returns how many seconds this rank has waited for data since the last call.
  double take_wait_seconds();
  /// Returns how many seconds this rank has waited, in the sums of all steps since the last call,
  /// for ranks whose samples came later than its own. Collective.
  double take_wait_for_others();

 private:
  void take_one();
  void adopt_sums();
  void start_loader();
  /// Returns the index in the epoch of the step that begins at `position`.
  std::int64_t step_at(std::int64_t position) const;

  const Job& job_;
  Replica& replica_;
  Communicator& communicator_;
  Loader loader_;
  RunState state_;
  OnResult on_result_;
  Ledger* ledger_;
  std::int64_t next_step_ = 0;  ///< index in the epoch
  bool started_ = false;        ///< true if the loader was started for this epoch
  double wait_seconds_ = 0;
  /// Waiting times of every wait_stride_-th step of the epoch, the same steps on every rank.
  std::vector<float> waits_;
  std::int64_t wait_stride_ = 1;
  StopQuestion gives_up_;
  bool has_given_up_ = false;
  std::string why_lost_;  ///< reason why queued steps were lost; empty if none were
};

}  // namespace dpt
