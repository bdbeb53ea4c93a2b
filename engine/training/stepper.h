// Walks a run step by step: the one place that knows how (epoch, position) leads to the next batch.
// A step with a non-finite loss, gradient or weight ends a walk as an exception (BadStep); what
// follows is decided in engine/training/divergence.h.
#pragma once

#include <functional>
#include <string>

#include "engine/checkpoints/checkpoint.h"
#include "engine/collectives/communicator.h"
#include "engine/data/loader.h"
#include "engine/replica/replica.h"
#include "kernels/base/error.h"

namespace dpt {

/// A step that must not count: its loss or gradient was not finite, and nothing was updated
/// (UpdateOutcome::refused), or its update made weights or optimizer state that are not
/// (UpdateOutcome::broken). Thrown on every rank alike; the Stepper then stands right before it.
class BadStep : public Error {
 public:
  BadStep(const StepResult& result, std::int64_t epoch, Range batch);

  const StepResult& result() const { return result_; }
  std::int64_t epoch() const { return epoch_; }  ///< counted from 0
  const Range& batch() const { return batch_; }  ///< positions in the epoch's order
  double loss() const;                           ///< mean over the batch
  /// None of its samples counts in the loss: there is nothing to learn from it, and no divergence.
  bool is_weightless() const { return result_.metrics.is_weightless(); }
  /// "the loss is nan", as part of a sentence.
  std::string what_is_wrong() const;

 private:
  StepResult result_;
  std::int64_t epoch_;
  Range batch_;
};

/// One rank's walk. Every rank makes the same calls. `step` and `drain` throw BadStep.
class Stepper {
 public:
  /// Called with every step's result, in order, Placement::steps_ahead late; on every rank.
  using OnResult = std::function<void(const StepResult&)>;

  /// `ledger`, if there is one, is told where this thread's time goes.
  Stepper(const Job& job, Replica& replica, Communicator& communicator, const RunState& start,
          OnResult on_result, Ledger* ledger = nullptr);

  /// Queues the next step of the current epoch. REQUIRES: !epoch_done().
  void step(bool vote_stop, bool want_grad_norm);
  /// Gives up steps between their micro-batches from now on if `question`, which is asked on this
  /// rank's thread, returns true. The rank then votes to stop, too. Has no effect on devices that
  /// queue.
  void may_give_up(StopQuestion question) { gives_up_ = std::move(question); }
  /// Returns true once a rank has given up a step. The state is that before the step, on every
  /// rank; no step may follow.
  bool has_given_up() const { return has_given_up_; }
  /// All steps of the current epoch are queued.
  bool epoch_done() const { return next_step_ == job_.data.steps_per_epoch; }
  /// Waits for all queued steps and passes on their results. Once steps were lost, throws
  /// ErrorKind::peer: sums that overlap were aborted, and the weights and the optimizer's state are
  /// not those of any step.
  void drain();
  /// After epoch_done: closes the epoch, resets its sums.
  void finish_epoch();

  /// Continues after a BadStep that left the weights unchanged. `is_counted`: it counts towards
  /// train.on_divergence's limit of steps in a row.
  void skip_step(bool is_counted);
  /// Goes on from `state`; the replica's weights are the caller's to set. REQUIRES: no result
  /// pending, so after drain() or a BadStep.
  void go_to(const RunState& state);

  /// Counters and sums; the sums are complete after drain().
  const RunState& state() const { return state_; }
  RunState& state() { return state_; }
  /// Seconds that this rank has waited for data since the last call.
  double take_wait_seconds();
  /// Collective. Of the steps since the last call, the seconds that this rank has waited in sums
  /// for ranks whose samples came later than its own.
  double take_wait_for_others();

 private:
  void take_one();
  void adopt_sums();
  void start_loader();
  /// Index in the epoch of the step that begins at `position`.
  std::int64_t step_at(std::int64_t position) const;

  const Job& job_;
  Replica& replica_;
  Communicator& communicator_;
  Loader loader_;
  RunState state_;
  OnResult on_result_;
  Ledger* ledger_;
  std::int64_t next_step_ = 0;  ///< index in the epoch
  bool started_ = false;        ///< the loader knows this epoch
  double wait_seconds_ = 0;
  /// Waits of every wait_stride_-th step of the epoch, the same steps on every rank.
  std::vector<float> waits_;
  std::int64_t wait_stride_ = 1;
  StopQuestion gives_up_;
  bool has_given_up_ = false;
  std::string why_lost_;  ///< steps that were queued; empty: none
};

}  // namespace dpt
