// Decay with the inverse square root of the step, from "Attention Is All You Need" (Vaswani et al.,
// 2017), in the form of Hugging Face's get_inverse_sqrt_schedule. PyTorch has no such schedule.
#include <algorithm>
#include <cmath>

#include "engine/schedules/clock.h"
#include "engine/schedules/kinds.h"

namespace dpt {
namespace {

struct InverseSqrtOptions {
  std::int64_t timescale = 0;  ///< 0 = the length of the warm-up
  Pace by = Pace::step;
};

const ObjectTable& inverse_sqrt_table() {
  static const ObjectTable the_table = object_table<InverseSqrtOptions>(
      "inverse_sqrt",
      "Decays the learning rate with the inverse square root of the time: t steps (or epochs) "
      "after the warm-up, it is lr * sqrt(timescale / (timescale + t)).",
      {field("timescale", &InverseSqrtOptions::timescale,
             "Steps (or epochs) in which the learning rate falls to 71 % (the inverse square root "
             "of 2) of lr; auto: the length of the warm-up.")
           .at_least(1)
           .zero_as("auto"),
       by_field<InverseSqrtOptions>()});
  return the_table;
}

LrSchedule make_inverse_sqrt(const Variant& variant, const ScheduledRun& run) {
  const InverseSqrtOptions options = variant.as<InverseSqrtOptions>();
  const Clock clock = clock_after_warmup(options.by, run);
  if (options.timescale == 0 && !run.has_warmup) {
    fail(ErrorKind::usage,
         "{}: lr_schedule: expected a timescale with inverse_sqrt, or a warmup, whose length is "
         "then the timescale, found neither",
         variant.where.text());
  }
  double timescale = static_cast<double>(options.timescale);
  if (options.timescale == 0) {
    // Use at least one unit, because a shorter warm-up would not be a meaningful timescale.
    timescale =
        std::max(1.0, static_cast<double>(run.warmup_steps) / static_cast<double>(clock.unit));
  }
  return [=, lr = run.base_lr](std::int64_t step) {
    return lr * std::sqrt(timescale / (timescale + static_cast<double>(clock.at(step))));
  };
}

}  // namespace

ScheduleKind inverse_sqrt_schedule() {
  return {&inverse_sqrt_table(), &make_inverse_sqrt};
}

}  // namespace dpt
