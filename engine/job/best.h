// Best result so far, the file that holds it, and early stopping.
#pragma once

#include <optional>
#include <string>

#include "engine/checkpoints/checkpoint.h"
#include "engine/config/train_spec.h"
#include "kernels/base/held_path.h"

namespace dpt {

/// "val/accuracy max": what RunState keeps with a value, so that it is compared with its like only.
std::string best_monitor_of(const TrainSpec& spec);
/// The same of early stopping; empty without it.
std::string early_monitor_of(const TrainSpec& spec);

/// Returns true if `value` is finite and better than `than`, if set.
bool is_better(const KeepBestSpec& keep, double value, std::optional<double> than);

/// The latest value of a monitor, where it was measured.
std::optional<double> last_value(const std::string& monitor, const RunState& state);

/// Takes a value into the exponential average of weight (1 - smoothing), and gives the average:
/// sum / weight, so that values before the first count for nothing. A value that is not finite is
/// given back and left out.
double smoothed(double smoothing, double value, double& sum, double& weight);

/// Returns the value that keep_best compares for the weights that belong to `state`: set at the end
/// of an epoch with a validation only.
std::optional<double> monitored_value(const KeepBestSpec& keep, const RunState& state);

/// Takes the results of an epoch (RunState::val_...) into account. Returns whether it is the best.
bool note_epoch(const TrainSpec& spec, RunState& state);

/// Returns true if early stopping has ended this run; also on resume.
bool has_stopped_early(const TrainSpec& spec, const RunState& state);

/// Why the file `path` is not the best checkpoint that `state` knows; empty if it is. Reading the
/// file's header verifies the whole file.
std::string why_not_best(const HeldPath& path, const RunState& state);

/// Leaves `state` without a best.
void forget_best(RunState& state);

/// On resume: forgets patience that was counted by another monitor.
void adopt_early_stopping(const TrainSpec& spec, RunState& state);

}  // namespace dpt
