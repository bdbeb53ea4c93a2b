// Cosine annealing over the whole run, as in torch.optim.lr_scheduler.CosineAnnealingLR with T_max
// set to the end of training.
#include <cmath>
#include <numbers>

#include "engine/schedules/clock.h"
#include "engine/schedules/kinds.h"

namespace dpt {
namespace {

struct CosineOptions {
  double min_lr = 0.0;
  Pace by = Pace::step;
};

const ObjectTable& cosine_table() {
  static const ObjectTable the_table = object_table<CosineOptions>(
      "cosine",
      "Cosine annealing from lr to min_lr over the steps after the warm-up, until the end of "
      "train.epochs: changing the number of epochs changes the curve, even when a run is resumed.",
      {field("min_lr", &CosineOptions::min_lr, "The learning rate at the end.").at_least(0),
       by_field<CosineOptions>()});
  return the_table;
}

LrSchedule make_cosine(const Variant& variant, const ScheduledRun& run) {
  const CosineOptions options = variant.as<CosineOptions>();
  check_lowest(variant, "min_lr", options.min_lr, run.base_lr);
  return [min_lr = options.min_lr, clock = clock_after_warmup(options.by, run),
          lr = run.base_lr](std::int64_t step) {
    const double done = static_cast<double>(clock.at(step, clock.length));
    const double angle = std::numbers::pi * done / static_cast<double>(clock.length);
    return min_lr + (lr - min_lr) * (1.0 + std::cos(angle)) / 2.0;
  };
}

}  // namespace

ScheduleKind cosine_schedule() {
  return {&cosine_table(), &make_cosine};
}

}  // namespace dpt
