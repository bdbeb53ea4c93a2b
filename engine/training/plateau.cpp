#include "engine/training/plateau.h"

#include <algorithm>
#include <cmath>

#include "engine/job/best.h"
#include "engine/schedules/plateau.h"

namespace dpt {
namespace {

bool improves(const PlateauOptions& options, double value, const std::optional<double>& best) {
  // A non-finite value is never an improvement, even if it is the first.
  if (!std::isfinite(value)) return false;
  if (!best) return true;
  const double signed_threshold =
      options.mode == Direction::min ? -options.threshold : options.threshold;
  const double bar = options.threshold_mode == ThresholdMode::rel ? *best * (1.0 + signed_threshold)
                                                                  : *best + signed_threshold;
  return options.mode == Direction::min ? value < bar : value > bar;
}

/// Returns the factor on the optimizer's learning rate after a reduction, or `scale` itself if the
/// reduction is too small to apply.
double reduced(const PlateauOptions& options, double base_lr, double scale) {
  const double lr = base_lr * scale;
  const bool is_floor = lr * options.factor < options.min_lr;
  const double next = is_floor ? options.min_lr / base_lr : scale * options.factor;
  return lr - base_lr * next > options.eps && std::isnormal(next) ? next : scale;
}

}  // namespace

std::optional<LrReduction> note_plateau(const TrainSpec& spec, double base_lr,
                                        std::int64_t steps_per_epoch, RunState& state) {
  const PlateauOptions* options = plateau_of(spec);
  if (!options) return std::nullopt;
  const auto last = last_value(options->monitor, state);
  if (!last) return std::nullopt;
  const double value = options->smoothing > 0 ? smoothed(options->smoothing, *last,
                                                         state.plateau_sum, state.plateau_weight)
                                              : *last;

  // Follow the order of ReduceLROnPlateau.step.
  if (improves(*options, value, state.plateau_best)) {
    state.plateau_best = value;
    state.plateau_bad = 0;
  } else if (state.step > warmup_steps_of(spec, steps_per_epoch)) {
    ++state.plateau_bad;
  }
  if (state.plateau_cooldown > 0) {
    --state.plateau_cooldown;
    state.plateau_bad = 0;
  }
  if (state.plateau_bad <= options->patience) return std::nullopt;

  LrReduction reduction;
  reduction.from = base_lr * state.plateau_scale;
  reduction.value = value;
  reduction.best = state.plateau_best;
  reduction.evaluations = state.plateau_bad;
  state.plateau_scale = reduced(*options, base_lr, state.plateau_scale);
  state.plateau_cooldown = options->cooldown;
  state.plateau_bad = 0;
  reduction.to = base_lr * state.plateau_scale;
  if (reduction.to == reduction.from) return std::nullopt;
  return reduction;
}

}  // namespace dpt
