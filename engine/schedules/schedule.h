// Learning-rate schedules. They are pure functions of the step, so a resumed run needs only its
// step. (`plateau` also depends on the results so far: engine/training/plateau.h.)
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/config/registry.h"
#include "engine/config/train_spec.h"

namespace dpt {

/// Function that returns the learning rate of update `step`, counted from 0.
using LrSchedule = std::function<double(std::int64_t step)>;

/// The run for which a schedule is made.
struct ScheduledRun {
  double base_lr = 0;  ///< the optimizer's learning rate
  std::int64_t steps_per_epoch = 1;
  std::int64_t epochs = 1;
  std::int64_t warmup_steps = 0;
  bool has_warmup = false;  ///< true if the config requests a warm-up, however short
  bool has_validation = false;
};

/// Kind of schedule. `make` returns the schedule without warm-up. It throws ErrorKind::usage for
/// options that do not fit the run.
struct ScheduleKind {
  const ObjectTable* table;
  LrSchedule (*make)(const Variant& options, const ScheduledRun& run);
  /// Returns a sentence about valid lengths that do not fit the run's length; empty if all of them
  /// fit. Null if the schedule has no lengths.
  std::string (*misfit)(const Variant& options, const ScheduledRun& run) = nullptr;
};

const Registry<ScheduleKind>& schedule_kinds();

/// Returns the length of the warm-up: warmup.steps, or warmup.epochs rounded to whole steps.
std::int64_t warmup_steps_of(const TrainSpec& spec, std::int64_t steps_per_epoch);

/// Returns sentences about a schedule or warm-up whose length does not fit the run, because it ends
/// early or never reaches its end. Without `steps_per_epoch`, checks only lengths in epochs.
std::vector<std::string> misfits_of_schedule(const TrainSpec& spec,
                                             std::optional<std::int64_t> steps_per_epoch);

/// Begin and length, in epochs, of each segment, one after another. In each segment, the schedule
/// starts again. A run whose train.epochs was raised may have several segments, or a segment that
/// ends early. A length of 0, which only the last segment may have, extends to the end of
/// train.epochs. After a segment of any other length, the last rate is kept. Empty: one segment,
/// the whole run.
using ScheduleSegments = std::vector<std::int64_t>;

/// Returns the schedule of a config with its warm-up, a factor that rises linearly from
/// start_factor to 1. `base_lr` is the optimizer's learning rate.
LrSchedule make_lr_schedule(const TrainSpec& spec, double base_lr, std::int64_t steps_per_epoch,
                            const ScheduleSegments& segments = {});

}  // namespace dpt
