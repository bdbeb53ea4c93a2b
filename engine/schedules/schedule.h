// Learning-rate schedules: pure functions of the step, so a resumed run needs nothing but its step.
// (`plateau` also depends on the results so far: engine/training/plateau.h.)
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/config/registry.h"
#include "engine/config/train_spec.h"

namespace dpt {

/// The learning rate of update `step`, counted from 0.
using LrSchedule = std::function<double(std::int64_t step)>;

/// The run that a schedule is made for.
struct ScheduledRun {
  double base_lr = 0;  ///< the optimizer's
  std::int64_t steps_per_epoch = 1;
  std::int64_t epochs = 1;
  std::int64_t warmup_steps = 0;
  bool has_warmup = false;  ///< the config asks for one, however short
  bool has_validation = false;
};

/// `make` gives the learning rate without warm-up. Throws ErrorKind::usage for options that do not
/// fit the run.
struct ScheduleKind {
  const ObjectTable* table;
  LrSchedule (*make)(const Variant& options, const ScheduledRun& run);
  /// Returns a sentence about lengths that are allowed but do not fit the run's; empty if they do.
  /// Null if the schedule has no lengths.
  std::string (*misfit)(const Variant& options, const ScheduledRun& run) = nullptr;
};

const Registry<ScheduleKind>& schedule_kinds();

std::int64_t warmup_steps_of(const TrainSpec& spec, std::int64_t steps_per_epoch);

/// Returns sentences about a schedule or warm-up whose length does not fit the run: it ends early,
/// or never reaches its end. Without `steps_per_epoch`, judges only what is counted in epochs.
std::vector<std::string> misfits_of_schedule(const TrainSpec& spec,
                                             std::optional<std::int64_t> steps_per_epoch);

/// A run whose epochs were raised may follow its schedule several times, or end it early: begin and
/// length of each time, in epochs, one after the other. A length of 0, in the last one, is that to
/// the end of train.epochs; after another length the last rate is kept. Empty: the whole run is
/// one.
using ScheduleSegments = std::vector<std::int64_t>;

/// Returns the schedule of a config with its warm-up: a factor on the schedule, which rises
/// linearly from start_factor to 1. `base_lr` is the optimizer's learning rate.
LrSchedule make_lr_schedule(const TrainSpec& spec, double base_lr, std::int64_t steps_per_epoch,
                            const ScheduleSegments& segments = {});

}  // namespace dpt
