// A decay every N epochs, like torch.optim.lr_scheduler.StepLR.
#include <cmath>

#include "engine/schedules/clock.h"
#include "engine/schedules/kinds.h"

namespace dpt {
namespace {

struct StepOptions {
  std::int64_t step_size = 0;
  double gamma = 0.1;
  Pace by = Pace::epoch;
};

const ObjectTable& step_table() {
  static const ObjectTable the_table = object_table<StepOptions>(
      "step",
      "Multiplies the learning rate by gamma every step_size epochs (or steps) of the run, like "
      "StepLR.",
      {field("step_size", &StepOptions::step_size, "Epochs (or steps) between two decays.")
           .required()
           .at_least(1),
       field("gamma", &StepOptions::gamma, "Factor of each decay.").above(0),
       by_field<StepOptions>()});
  return the_table;
}

LrSchedule make_step(const Variant& variant, const ScheduledRun& run) {
  const StepOptions options = variant.as<StepOptions>();
  return [=, clock = clock_of_run(options.by, run), lr = run.base_lr](std::int64_t step) {
    const std::int64_t drops = clock.at(step) / options.step_size;
    return lr * std::pow(options.gamma, static_cast<double>(drops));
  };
}

std::string misfit_of_step(const Variant& variant, const ScheduledRun& run) {
  const StepOptions options = variant.as<StepOptions>();
  const std::int64_t length = clock_of_run(options.by, run).length;
  if (options.step_size < length) return {};
  return fmt::format("step_size: the run has {}, so the learning rate never changes",
                     count_text(length, options.by));
}

}  // namespace

ScheduleKind step_schedule() {
  return {&step_table(), &make_step, &misfit_of_step};
}

}  // namespace dpt
