// Reports of a run during training: the lines of its log, its messages, and the progress bar.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "engine/job/job.h"
#include "engine/replica/replica.h"
#include "engine/run/ledger.h"
#include "engine/run/progress.h"
#include "engine/run/run_log.h"
#include "engine/training/evaluator.h"
#include "engine/training/plateau.h"
#include "engine/training/stepper.h"

namespace dpt {

/// Returns "images", or "samples" for tables and other data without a height and a width.
const char* noun_of_samples(const Job& job);

double seconds_since(std::chrono::steady_clock::time_point start);

/// Returns the name of the average of the weights that evaluations use, as in JobUpdate::average.
/// Empty if no average is kept. Also empty before the first epoch of train.swa, when the average
/// equals the weights.
std::string evaluated_average(const Job& job, const RunState& state);

/// Adds values under their names to a line of the log, or to results.
void add_values(Json& line, const NamedValues& values);
/// Adds the metrics of an evaluation, including accuracy. Adds values by class as "NAME_of".
void add_values(Json& line, const EvalResult& result);

/// Reports on rank 0, whose replica represents all. Measured speeds are those of this process.
class RunReport {
 public:
  /// `first_step` is the number of updates done before this process started, and `last_step` the
  /// number of updates done when it ends.
  RunReport(const Job& job, std::int64_t first_step, std::int64_t last_step, Backend& backend,
            Replica& replica, Stepper& stepper, RunLog& log, Progress& progress);

  /// Reports that training begins.
  void begin();
  /// These two mark the beginning and the end of an epoch's training steps. Time between an end and
  /// the next beginning, such as that of an evaluation, does not count towards the speed.
  void begin_epoch();
  void end_training_of_epoch();
  /// Begins a new interval for the speed of steps. Time before it, such as that of an evaluation or
  /// a rollback, does not count.
  void begin_interval();
  /// Excludes the seconds of a save between two steps from the time that the speed of steps counts.
  void saved(double seconds);

  /// Returns true if the log has a line for this step. All ranks return the same.
  bool is_logged(std::int64_t step) const;
  /// Reports the result of one step: updates the bar, and logs a line as often as `log.every`
  /// requires.
  void step(const StepResult& result);
  /// Reports once, after the first epoch, how the device runs its steps.
  void replica();
  /// Reports a finished epoch, whose results are in the RunState.
  void epoch(const std::optional<EvalResult>& val, bool improved, bool early_stopped);
  /// Reports an evaluation. `weights` is the name of the average that was evaluated, as in
  /// JobUpdate::average; empty if none.
  void eval(const EvalResult& result, const std::string& weights);
  /// Shows the progress of an evaluation of a split.
  void evaluating(const std::string& split, std::int64_t done, std::int64_t total);
  /// Reports the times since the last ledger.
  void ledger(const LedgerTotals& totals);
  /// Reports that the schedule has lowered the learning rate from the next step on.
  void lr_reduced(const LrReduction& reduction);

 private:
  using Clock = std::chrono::steady_clock;

  /// Speed of the training steps of an epoch that ran in this process.
  struct Speed {
    double seconds, rate, wait;
  };

  bool has_accuracy() const;
  /// Records the end of a step, logged or not.
  void note_step(const StepResult& result, double loss);
  /// Returns true if it is time to show the status. It is not shown at every step.
  bool is_status_due();
  void show_status(const StepResult& result, double loss);
  double wait_fraction(double waited, double elapsed);
  std::string epoch_line(bool improved) const;
  /// Warns once of each monitor that has no value to compare, such as an AUROC if all samples have
  /// the same class.
  void warn_of_undefined_monitors();

  const Job& job_;
  std::int64_t first_step_, last_step_;
  Backend& backend_;
  Replica& replica_;
  Stepper& stepper_;
  RunLog& log_;
  Progress& progress_;
  std::set<std::string> undefined_monitors_;
  bool replica_logged_ = false;
  std::int64_t run_samples_ = 0, interval_samples_ = 0, epoch_first_position_ = 0;
  double epoch_wait_ = 0, epoch_saving_ = 0, interval_saving_ = 0;
  std::optional<Speed> speed_;  ///< empty if a resumed process had no step of the epoch left
  Clock::time_point begun_, interval_begun_, step_begun_, epoch_begun_, status_shown_{};
};

}  // namespace dpt
