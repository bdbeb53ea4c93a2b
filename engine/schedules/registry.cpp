// The registry of schedules, and the warm-up, which any schedule can have.
#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

#include "engine/schedules/kinds.h"

namespace dpt {

const Registry<ScheduleKind>& schedule_kinds() {
  static const Registry<ScheduleKind> registry("lr_schedule", all_schedules(),
                                               {{"ConstantLR", "constant"},
                                                {"fixed", "constant"},
                                                {"none", "constant"},
                                                {"StepLR", "step"},
                                                {"StepDecay", "step"},
                                                {"MultiStepLR", "multistep"},
                                                {"PiecewiseConstantDecay", "multistep"},
                                                {"ExponentialLR", "exponential"},
                                                {"ExponentialDecay", "exponential"},
                                                {"PolynomialLR", "polynomial"},
                                                {"poly", "polynomial"},
                                                {"PolynomialDecay", "polynomial"},
                                                {"LinearLR", "linear"},
                                                {"CosineAnnealingLR", "cosine"},
                                                {"CosineAnnealingWarmRestarts", "cosine_restarts"},
                                                {"CosineDecayRestarts", "cosine_restarts"},
                                                {"OneCycleLR", "one_cycle"},
                                                {"onecycle", "one_cycle"},
                                                {"1cycle", "one_cycle"},
                                                {"ReduceLROnPlateau", "plateau"},
                                                {"reduce_on_plateau", "plateau"},
                                                {"noam", "inverse_sqrt"},
                                                {"trapezoidal", "wsd"},
                                                {"warmup_stable_decay", "wsd"},
                                                {"CosineDecay", "cosine"}});
  return registry;
}

std::int64_t warmup_steps_of(const TrainSpec& spec, std::int64_t steps_per_epoch) {
  const WarmupSpec& warmup = spec.warmup;
  if (warmup.steps > 0) return warmup.steps;
  return std::llround(warmup.epochs * static_cast<double>(steps_per_epoch));
}

namespace {

ScheduledRun scheduled_run(const TrainSpec& spec, double base_lr, std::int64_t steps_per_epoch,
                           std::int64_t epochs) {
  assert(steps_per_epoch >= 1);
  const WarmupSpec& warmup = spec.warmup;
  ScheduledRun run;
  run.base_lr = base_lr;
  run.steps_per_epoch = steps_per_epoch;
  run.epochs = epochs;
  run.has_warmup = warmup.steps > 0 || warmup.epochs > 0;
  run.has_validation = spec.data.may_validate();
  run.warmup_steps = warmup_steps_of(spec, steps_per_epoch);
  return run;
}

/// Returns true if a schedule counts in steps, not in epochs.
bool counts_steps(const Variant& schedule) {
  const auto& fields = schedule.table->fields;
  return std::any_of(fields.begin(), fields.end(), [&](const Field& field) {
    return field.name == "by" && field.get(schedule.options.get()) == PlainValue("step");
  });
}

/// Returns the schedule of one segment, with its warm-up.
LrSchedule make_segment(const TrainSpec& spec, double base_lr, std::int64_t steps_per_epoch,
                        std::int64_t epochs) {
  const ScheduledRun run = scheduled_run(spec, base_lr, steps_per_epoch, epochs);
  LrSchedule schedule = schedule_kinds().at(spec.lr_schedule.type).make(spec.lr_schedule, run);
  if (run.warmup_steps <= 0) return schedule;
  const double start = spec.warmup.start_factor;
  return [schedule, start, warmup_steps = run.warmup_steps](std::int64_t step) {
    if (step >= warmup_steps) return schedule(step);
    const double share = static_cast<double>(step) / static_cast<double>(warmup_steps);
    return schedule(step) * (start + (1.0 - start) * share);
  };
}

}  // namespace

LrSchedule make_lr_schedule(const TrainSpec& spec, double base_lr, std::int64_t steps_per_epoch,
                            const ScheduleSegments& segments) {
  if (segments.empty()) return make_segment(spec, base_lr, steps_per_epoch, spec.train.epochs);
  struct Part {
    std::int64_t begin, last;  ///< in steps
    LrSchedule schedule;
  };
  std::vector<Part> parts;
  for (std::size_t i = 0; i + 1 < segments.size(); i += 2) {
    const std::int64_t begin = segments[i], length = segments[i + 1];
    const std::int64_t epochs =
        length > 0 ? length : std::max<std::int64_t>(1, spec.train.epochs - begin);
    parts.push_back(
        {begin * steps_per_epoch,
         length > 0 ? length * steps_per_epoch - 1 : std::numeric_limits<std::int64_t>::max(),
         make_segment(spec, base_lr, steps_per_epoch, epochs)});
  }
  return [parts](std::int64_t step) {
    std::size_t at = parts.size() - 1;
    while (at > 0 && step < parts[at].begin) --at;
    return parts[at].schedule(std::min(step - parts[at].begin, parts[at].last));
  };
}

std::vector<std::string> misfits_of_schedule(const TrainSpec& spec,
                                             std::optional<std::int64_t> steps_per_epoch) {
  // Number of steps per epoch to assume if it is unknown. It is so large that fractions of an epoch
  // are whole steps.
  constexpr std::int64_t kAnySteps = 1000;
  const bool knows_steps = steps_per_epoch.has_value();
  const ScheduledRun run =
      scheduled_run(spec, 0, steps_per_epoch.value_or(kAnySteps), spec.train.epochs);
  const bool has_known_warmup = knows_steps || spec.warmup.steps == 0;
  if (has_known_warmup && run.warmup_steps > run.steps_per_epoch * run.epochs) {
    const bool in_steps = spec.warmup.steps > 0;
    return {fmt::format(
        "lr_schedule.warmup: {} {} are more than the run has ({}): it never reaches the learning "
        "rate of the schedule",
        in_steps ? static_cast<double>(spec.warmup.steps) : spec.warmup.epochs,
        in_steps ? "steps" : "epochs", in_steps ? run.steps_per_epoch * run.epochs : run.epochs)};
  }
  const ScheduleKind& kind = schedule_kinds().at(spec.lr_schedule.type);
  const bool is_known = has_known_warmup && (knows_steps || !counts_steps(spec.lr_schedule));
  if (!kind.misfit || !is_known) return {};
  const std::string text = kind.misfit(spec.lr_schedule, run);
  if (text.empty()) return {};
  return {fmt::format("lr_schedule: {}: {}", spec.lr_schedule.type, text)};
}

}  // namespace dpt
