// Reports of a run while it trains: the lines of its log, its messages, and the progress bar.
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

/// "images", or "samples" of tables and other data without a height and a width.
const char* noun_of_samples(const Job& job);

double seconds_since(std::chrono::steady_clock::time_point start);

/// The average of the weights that evaluations look at, as JobUpdate::average; empty before the
/// first epoch of train.swa, where it is the weights themselves, and where none is kept.
std::string evaluated_average(const Job& job, const RunState& state);

/// Adds values under their names to a line of the log, or to results.
void add_values(Json& line, const NamedValues& values);
/// The metrics of an evaluation, accuracy among them; those of classes as "NAME_of".
void add_values(Json& line, const EvalResult& result);

/// For rank 0, whose replica stands for all. It also measures: speeds are those of this process.
class RunReport {
 public:
  /// `first_step`: number of updates done before this process; `last_step`: number of updates done
  /// when it has reached its end.
  RunReport(const Job& job, std::int64_t first_step, std::int64_t last_step, Backend& backend,
            Replica& replica, Stepper& stepper, RunLog& log, Progress& progress);

  /// Training begins.
  void begin();
  /// The training steps of an epoch begin, or end; what follows until the next one, such as the
  /// evaluation, is not part of its speed.
  void begin_epoch();
  void end_training_of_epoch();
  /// The time until now belongs to no step: an evaluation, a rollback.
  void begin_interval();
  /// Nor do these seconds, of a save between two steps.
  void saved(double seconds);

  /// Returns true if the log has a line for this step: the same on all ranks.
  bool is_logged(std::int64_t step) const;
  /// One step's result: the bar, and a line of the log where `log.every` asks for it.
  void step(const StepResult& result);
  /// Reports once, after the first epoch, how the device runs its steps.
  void replica();
  /// A finished epoch: RunState holds its results.
  void epoch(const std::optional<EvalResult>& val, bool improved, bool early_stopped);
  /// `weights`: the average of them that was evaluated, as JobUpdate::average; empty = none.
  void eval(const EvalResult& result, const std::string& weights);
  /// Shows the progress of an evaluation of a split.
  void evaluating(const std::string& split, std::int64_t done, std::int64_t total);
  /// Reports the times since the last ledger.
  void ledger(const LedgerTotals& totals);
  /// The schedule has lowered the learning rate, from the next step on.
  void lr_reduced(const LrReduction& reduction);

 private:
  using Clock = std::chrono::steady_clock;

  /// Speed of the training steps of an epoch that this process ran.
  struct Speed {
    double seconds, rate, wait;
  };

  bool has_accuracy() const;
  /// Passes on that a step has ended, logged or not.
  void note_step(const StepResult& result, double loss);
  /// Returns true if it is time to show the status, which is not at every step.
  bool is_status_due();
  void show_status(const StepResult& result, double loss);
  double wait_fraction(double waited, double elapsed);
  std::string epoch_line(bool improved) const;
  /// Warns, once for each, of monitors that have no value to compare, such as the AUROC of samples
  /// of one class.
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
  std::optional<Speed> speed_;  ///< nothing where a resumed process had no step of the epoch left
  Clock::time_point begun_, interval_begun_, step_begun_, epoch_begun_, status_shown_{};
};

}  // namespace dpt
