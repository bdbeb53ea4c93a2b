// Cosine annealing with restarts, as in torch.optim.lr_scheduler.CosineAnnealingWarmRestarts.
#include <cmath>
#include <numbers>

#include "engine/schedules/clock.h"
#include "engine/schedules/kinds.h"

namespace dpt {
namespace {

struct CosineRestartsOptions {
  std::int64_t first_length = 0;  ///< T_0
  std::int64_t factor = 1;        ///< T_mult
  double lowest = 0.0;            ///< eta_min
  Pace by = Pace::epoch;
};

const ObjectTable& cosine_restarts_table() {
  using S = CosineRestartsOptions;
  static const ObjectTable the_table = object_table<S>(
      "cosine_restarts",
      "Cosine annealing from lr to eta_min after the warm-up, repeated, like "
      "CosineAnnealingWarmRestarts.",
      {field("T_0", &S::first_length, "Epochs (or steps) until the first restart.")
           .required()
           .range(1, 1e12),
       field("T_mult", &S::factor, "Ratio of the length of each cycle to that of the previous one.")
           .range(1, 1e6),
       field("eta_min", &S::lowest, "The learning rate at the end of a cycle.").at_least(0),
       by_field<S>()});
  return the_table;
}

LrSchedule make_cosine_restarts(const Variant& variant, const ScheduledRun& run) {
  const CosineRestartsOptions options = variant.as<CosineRestartsOptions>();
  check_lowest(variant, "eta_min", options.lowest, run.base_lr);
  return [=, clock = clock_after_warmup(options.by, run), lr = run.base_lr](std::int64_t step) {
    std::int64_t done = clock.at(step);
    std::int64_t length = options.first_length;
    if (options.factor == 1) {
      done %= length;
    } else {
      while (done >= length) {
        done -= length;
        length *= options.factor;
      }
    }
    const double angle = std::numbers::pi * static_cast<double>(done) / static_cast<double>(length);
    return options.lowest + (lr - options.lowest) * (1.0 + std::cos(angle)) / 2.0;
  };
}

std::string misfit_of_cosine_restarts(const Variant& variant, const ScheduledRun& run) {
  const CosineRestartsOptions options = variant.as<CosineRestartsOptions>();
  return misfit_of_length(clock_after_warmup(options.by, run), options.by, "T_0",
                          options.first_length, "it starts again", false);
}

}  // namespace

ScheduleKind cosine_restarts_schedule() {
  return {&cosine_restarts_table(), &make_cosine_restarts, &misfit_of_cosine_restarts};
}

}  // namespace dpt
