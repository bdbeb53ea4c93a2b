// The schedule `plateau`: the learning rate is scaled by RunState::plateau_scale, as in
// torch.optim.lr_scheduler.ReduceLROnPlateau.
#include "engine/schedules/plateau.h"

#include "engine/config/monitor_fields.h"
#include "engine/metrics/metric.h"
#include "engine/schedules/clock.h"
#include "engine/schedules/kinds.h"

namespace dpt {
namespace {

std::string check_plateau(const PlateauOptions& options) {
  if (options.factor >= 1) {
    return fmt::format("factor: expected a number below 1, found {:g}", options.factor);
  }
  return check_direction(&better_direction, options.monitor, options.mode);
}

const ObjectTable& plateau_table() {
  using S = PlateauOptions;
  static const ObjectTable the_table = object_table<S>(
      "plateau",
      "Multiplies the learning rate by factor when a monitored value no longer improves, like "
      "ReduceLROnPlateau. The value is checked after each epoch; within the warm-up, an epoch "
      "without improvement does not count.",
      {monitor_field<S>(), mode_field<S>(&better_direction),
       field("factor", &S::factor, "Factor of each reduction; above 0 and below 1.").above(0),
       field("patience", &S::patience,
             "Number of evaluations in a row without improvement that are tolerated; one more "
             "reduces the learning rate.")
           .at_least(0),
       field("threshold", &S::threshold, "The smallest change that counts as an improvement.")
           .at_least(0),
       field("threshold_mode", &S::threshold_mode,
             "rel: threshold is a fraction of the best value. abs: threshold is a difference from "
             "the best value."),
       field("cooldown", &S::cooldown,
             "Number of evaluations after a reduction that do not count against patience.")
           .at_least(0),
       field("min_lr", &S::min_lr,
             "Lower limit of the learning rate (train.on_divergence may still reduce it further).")
           .at_least(0),
       field("eps", &S::eps, "A reduction by this amount or less is skipped.").at_least(0),
       smoothing_field<S>()},
      &check_plateau);
  return the_table;
}

LrSchedule make_plateau(const Variant& variant, const ScheduledRun& run) {
  const PlateauOptions& options = variant.as<PlateauOptions>();
  check_lowest(variant, "min_lr", options.min_lr, run.base_lr);
  if (!run.has_validation) {
    fail(ErrorKind::usage,
         "{}: lr_schedule: plateau monitors {}, but there are no validation samples: set "
         "data.val_split",
         variant.where.text(), options.monitor);
  }
  return [lr = run.base_lr](std::int64_t) { return lr; };
}

}  // namespace

const PlateauOptions* plateau_of(const TrainSpec& spec) {
  const bool is_plateau = spec.lr_schedule.table == &plateau_table();
  return is_plateau ? &spec.lr_schedule.as<PlateauOptions>() : nullptr;
}

ScheduleKind plateau_schedule() {
  return {&plateau_table(), &make_plateau};
}

}  // namespace dpt
