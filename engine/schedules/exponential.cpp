// An exponential decay, like torch.optim.lr_scheduler.ExponentialLR.
#include <cmath>

#include "engine/schedules/clock.h"
#include "engine/schedules/kinds.h"

namespace dpt {
namespace {

struct ExponentialOptions {
  double gamma = 0;
  Pace by = Pace::epoch;
};

const ObjectTable& exponential_table() {
  static const ObjectTable the_table = object_table<ExponentialOptions>(
      "exponential",
      "Multiplies the learning rate by gamma every epoch (or step) after the warm-up, like "
      "ExponentialLR.",
      {field("gamma", &ExponentialOptions::gamma, "Factor of each decay.").required().above(0),
       by_field<ExponentialOptions>()});
  return the_table;
}

LrSchedule make_exponential(const Variant& variant, const ScheduledRun& run) {
  const ExponentialOptions options = variant.as<ExponentialOptions>();
  return [=, clock = clock_after_warmup(options.by, run), lr = run.base_lr](std::int64_t step) {
    return lr * std::pow(options.gamma, static_cast<double>(clock.at(step)));
  };
}

}  // namespace

ScheduleKind exponential_schedule() {
  return {&exponential_table(), &make_exponential};
}

}  // namespace dpt
