#include "engine/job/best.h"

#include <cmath>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "kernels/base/file_io.h"
#include "kernels/base/held_path.h"

namespace dpt {
namespace {

/// Returns the amount by which `value` is better than `than`; negative if it is worse.
double gain(Direction mode, double value, double than) {
  return mode == Direction::max ? value - than : than - value;
}

/// Returns "val/accuracy max", or with smoothing "val/accuracy max (smoothing 0.6)".
std::string monitor_text(const std::string& monitor, Direction mode, double smoothing) {
  return fmt::format("{} {}{}", monitor, name_of(mode),
                     smoothing > 0 ? fmt::format(" (smoothing {})", smoothing) : "");
}

/// Returns the value for RunState::best_average_of; empty without smoothing.
std::string average_of(const KeepBestSpec& keep) {
  return keep.smoothing > 0 ? fmt::format("{} {}", keep.monitor, keep.smoothing) : std::string();
}

/// Adds the value of an evaluation to the average and returns the value that keep_best compares.
double note_average(const KeepBestSpec& keep, double value, RunState& state) {
  const std::string now = average_of(keep);
  if (state.best_average_of != now) {
    state.best_average_of = now;
    state.best_sum = state.best_weight = 0;
  }
  return keep.smoothing > 0 ? smoothed(keep.smoothing, value, state.best_sum, state.best_weight)
                            : value;
}

}  // namespace

double smoothed(double smoothing, double value, double& sum, double& weight) {
  if (!std::isfinite(value)) return value;
  sum = smoothing * sum + (1.0 - smoothing) * value;
  weight = smoothing * weight + (1.0 - smoothing);
  return sum / weight;
}

std::optional<double> last_value(const std::string& monitor, const RunState& state) {
  if (monitor == "val/loss") return state.val_loss;
  if (monitor == "val/accuracy") return state.val_accuracy;
  for (const auto& [name, value] : state.val_metrics) {
    if (monitor == "val/" + name) return value;
  }
  return std::nullopt;
}

std::string best_monitor_of(const TrainSpec& spec) {
  const KeepBestSpec& keep = spec.checkpoint.keep_best;
  return monitor_text(keep.monitor, keep.mode, keep.smoothing);
}

std::string early_monitor_of(const TrainSpec& spec) {
  const auto& early = spec.train.early_stopping;
  return early ? monitor_text(early->monitor, early->mode, early->smoothing) : std::string();
}

bool is_better(const KeepBestSpec& keep, double value, std::optional<double> than) {
  return std::isfinite(value) && (!than || gain(keep.mode, value, *than) > 0);
}

std::optional<double> monitored_value(const KeepBestSpec& keep, const RunState& state) {
  if (state.position != 0 || state.epoch == 0) return std::nullopt;
  const auto value = last_value(keep.monitor, state);
  // An average of another monitor or smoothing cannot be continued, so a new one begins at this
  // value.
  const bool has_average = state.best_weight > 0 && state.best_average_of == average_of(keep);
  if (!value || !std::isfinite(*value) || !has_average) return value;
  return state.best_sum / state.best_weight;
}

bool note_epoch(const TrainSpec& spec, RunState& state) {
  const KeepBestSpec& keep = spec.checkpoint.keep_best;
  bool improved = false;
  if (const auto last = last_value(keep.monitor, state)) {
    const double value = note_average(keep, *last, state);
    improved = is_better(keep, value, state.best);
    if (improved) {
      state.best = value;
      state.best_step = state.step;
      state.best_monitor = best_monitor_of(spec);
      state.best_checksum.clear();
    }
  }
  if (const auto& early = spec.train.early_stopping) {
    if (const auto last = last_value(early->monitor, state)) {
      const double value = early->smoothing > 0 ? smoothed(early->smoothing, *last, state.early_sum,
                                                           state.early_weight)
                                                : *last;
      // A non-finite value is never an improvement, even if it is the first.
      if (std::isfinite(value) &&
          (!state.early_best || gain(early->mode, value, *state.early_best) > early->min_delta)) {
        state.early_best = value;
        state.bad_evaluations = 0;
      } else {
        ++state.bad_evaluations;
      }
      state.early_monitor = early_monitor_of(spec);
    }
  }
  return improved;
}

bool has_stopped_early(const TrainSpec& spec, const RunState& state) {
  const auto& early = spec.train.early_stopping;
  return early && state.bad_evaluations >= early->patience;
}

void adopt_early_stopping(const TrainSpec& spec, RunState& state) {
  const std::string now = early_monitor_of(spec);
  if (state.early_monitor.empty() || state.early_monitor == now) return;
  state.early_best.reset();
  state.bad_evaluations = 0;
  state.early_sum = state.early_weight = 0;
  state.early_monitor = now;
}

void forget_best(RunState& state) {
  state.best.reset();
  state.best_step = 0;
  state.best_monitor.clear();
  state.best_checksum.clear();
}

std::string why_not_best(const HeldPath& path, const RunState& state) {
  if (entry_type(path) == EntryType::none) return path.text() + ": no such file";
  try {
    const CheckpointHeader header = read_checkpoint_header(path);
    // Files written before 1.2 do not record the checksum of their best checkpoint.
    const bool same = state.best_checksum.empty()
                          ? header.state.step == state.best_step && header.state.best == state.best
                          : header.checksum == state.best_checksum;
    if (!same) {
      return fmt::format("{} is another checkpoint (step {})", path.text(), header.state.step);
    }
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace dpt
