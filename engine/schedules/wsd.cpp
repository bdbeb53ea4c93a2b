// Warm-up, stable, decay: a constant learning rate that falls at the end of the run. Shapes and
// defaults are from Hägele et al., "Scaling Laws and Compute-Optimal Training Beyond Fixed Training
// Durations" (2024). PyTorch has no such schedule.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "engine/schedules/clock.h"
#include "engine/schedules/kinds.h"

namespace dpt {
namespace {

enum class DecayShape : std::uint8_t { one_minus_sqrt, linear, cosine };
constexpr auto enum_names(DecayShape) {
  return std::to_array<EnumName<DecayShape>>({{DecayShape::one_minus_sqrt, "1-sqrt"},
                                              {DecayShape::linear, "linear"},
                                              {DecayShape::cosine, "cosine"}});
}

struct WsdOptions {
  double decay = 0.2;
  DecayShape shape = DecayShape::one_minus_sqrt;
  double min_lr = 0.0;
  Pace by = Pace::step;
};

const ObjectTable& wsd_table() {
  static const ObjectTable the_table = object_table<WsdOptions>(
      "wsd",
      "Warm-up, stable, decay: lr after the warm-up, then a decay to min_lr at the end of "
      "train.epochs. Changing the number of epochs changes where the decay begins, even when a run "
      "is resumed; before that point, the curve is the same for any number of epochs.",
      {field("decay", &WsdOptions::decay,
             "Fraction of the steps (or epochs) after the warm-up that the decay takes, at the end "
             "of the run.")
           .range(0, 1)
           .above(0),
       field("shape", &WsdOptions::shape,
             "Shape of the decay, with p from 0 to 1: 1-sqrt (1 - sqrt(p)), linear (1 - p), cosine "
             "((1 + cos(pi * p)) / 2)."),
       field("min_lr", &WsdOptions::min_lr, "The learning rate at the end.").at_least(0),
       by_field<WsdOptions>()});
  return the_table;
}

double what_is_left(DecayShape shape, double p) {
  switch (shape) {
    case DecayShape::one_minus_sqrt:
      return 1.0 - std::sqrt(p);
    case DecayShape::linear:
      return 1.0 - p;
    case DecayShape::cosine:
      return (1.0 + std::cos(std::numbers::pi * p)) / 2.0;
  }
  return 1.0;
}

LrSchedule make_wsd(const Variant& variant, const ScheduledRun& run) {
  const WsdOptions options = variant.as<WsdOptions>();
  check_lowest(variant, "min_lr", options.min_lr, run.base_lr);
  const Clock clock = clock_after_warmup(options.by, run);
  const std::int64_t decay = std::clamp<std::int64_t>(
      std::llround(options.decay * static_cast<double>(clock.length)), 1, clock.length);
  return [=, stable = clock.length - decay, lr = run.base_lr](std::int64_t step) {
    const std::int64_t done = clock.at(step, clock.length) - stable;
    if (done <= 0) return lr;
    const double p = static_cast<double>(done) / static_cast<double>(decay);
    return options.min_lr + (lr - options.min_lr) * what_is_left(options.shape, p);
  };
}

}  // namespace

ScheduleKind wsd_schedule() {
  return {&wsd_table(), &make_wsd};
}

}  // namespace dpt
