// The best result so far, the file that holds it, and early stopping.
#pragma once

#include <optional>
#include <string>

#include "engine/checkpoints/checkpoint.h"
#include "engine/config/train_spec.h"
#include "kernels/base/held_path.h"

namespace dpt {

/// Returns the monitor of keep_best with its direction, such as "val/accuracy max". RunState stores
/// this text with the best value, so that only values of the same monitor are compared.
std::string best_monitor_of(const TrainSpec& spec);
/// Returns the monitor of early stopping with its direction, or an empty string without early
/// stopping.
std::string early_monitor_of(const TrainSpec& spec);

/// Returns true if `value` is finite and better than `than`. Any finite value is better than an
/// unset `than`.
bool is_better(const KeepBestSpec& keep, double value, std::optional<double> than);

/// Returns the latest value of a monitor, or nothing if it was not measured.
std::optional<double> last_value(const std::string& monitor, const RunState& state);

/// Adds a value to the exponential average, with weight (1 - smoothing). Returns the average, sum /
/// weight, in which only values added so far have weight. Returns a non-finite value unchanged and
/// leaves it out of the average.
double smoothed(double smoothing, double value, double& sum, double& weight);

/// Returns the value that keep_best compares for the weights that belong to `state`. Returns
/// nothing, except at the end of an epoch with a validation.
std::optional<double> monitored_value(const KeepBestSpec& keep, const RunState& state);

/// Updates the best result and early stopping with the results of an epoch (RunState::val_...).
/// Returns true if the epoch is the best so far.
bool note_epoch(const TrainSpec& spec, RunState& state);

/// Returns true if early stopping has ended this run, even before a resume.
bool has_stopped_early(const TrainSpec& spec, const RunState& state);

/// Returns the reason why the file `path` is not the best checkpoint that `state` records, or an
/// empty string if it is. Reading the file's header verifies the whole file.
std::string why_not_best(const HeldPath& path, const RunState& state);

/// Removes the record of the best result from `state`.
void forget_best(RunState& state);

/// Resets the patience of a resumed run if it was counted with another monitor.
void adopt_early_stopping(const TrainSpec& spec, RunState& state);

}  // namespace dpt
