// Counters of a run, as checkpoints keep them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/config/train_spec.h"

namespace dpt {

/// The counters of a run. Together with weights and optimizer state, they determine the next step
/// completely: random draws are functions of them.
struct RunState {
  std::int64_t step = 0;       ///< steps done, including skipped ones
  std::int64_t epoch = 0;      ///< epochs completed
  std::int64_t position = 0;   ///< samples of the current epoch already trained on
  std::optional<double> best;  ///< best monitored value so far
  std::int64_t best_step = 0;
  std::string best_monitor;  ///< the monitor of `best`: "val/accuracy max"
  /// Checksum of the best checkpoint's file; empty if that file holds this state itself.
  std::string best_checksum;
  std::optional<double> early_best;  ///< early stopping: the value to improve on
  std::int64_t bad_evaluations = 0;  ///< early stopping: evaluations since an improvement
  std::string early_monitor;         ///< the monitor of `early_best`
  /// ScheduleSegments of the learning rate after a change of train.epochs; empty = a single one.
  std::vector<std::int64_t> schedule_segments;
  // Exponential averages of monitored values (`smoothing`), corrected by their weight; 0 without
  // smoothing.
  std::string best_average_of;  ///< result to which keep_best's average belongs: "val/accuracy 0.6"
  double best_sum = 0, best_weight = 0;
  double early_sum = 0, early_weight = 0;
  double plateau_sum = 0, plateau_weight = 0;
  // State of the schedule `plateau`.
  double plateau_scale = 1;            ///< factor on the optimizer's learning rate
  std::optional<double> plateau_best;  ///< the value to improve on
  std::int64_t plateau_bad = 0;        ///< evaluations since an improvement
  std::int64_t plateau_cooldown = 0;   ///< remaining evaluations that do not count
  double epoch_loss_sum = 0;           ///< running sums of the current epoch, for its log line
  double epoch_correct = 0;
  double epoch_weight = 0;         ///< divisor of epoch_loss_sum
  double epoch_labelled = 0;       ///< divisor of epoch_correct and epoch_sums
  std::vector<double> epoch_sums;  ///< sums of the other metrics: StepMetrics::sums from 1 on
  /// Device weights that dpt 0.1 measured, one per device; empty for any other run.
  std::vector<std::int64_t> device_weights;
  // Results of the last complete epoch, if measured.
  std::optional<double> train_loss, train_accuracy, val_loss, val_accuracy;
  NamedValues train_metrics, val_metrics;  ///< metrics other than loss and accuracy
  std::int64_t val_n = 0;
  // Effects of train.on_divergence so far.
  double lr_scale = 1;         ///< factor on the schedule's learning rate
  std::int64_t rollbacks = 0;  ///< number of rollbacks that led to lr_scale
  /// Step to which a rollback returns; -1: the start of the process.
  std::int64_t rollback_step = -1;
  /// Step of a later regular checkpoint, which replaces rollback_step once a step after it was
  /// good; -1: none.
  std::int64_t rollback_candidate = -1;
  std::int64_t skipped_steps = 0;   ///< steps among `step` that updated nothing
  std::int64_t skipped_in_row = 0;  ///< steps skipped since the last update
  std::int64_t epoch_skipped = 0;   ///< samples of the current epoch that are in no running sum
  std::int64_t averaged = 0;        ///< epochs whose weights are in the average of train.swa
};

}  // namespace dpt
