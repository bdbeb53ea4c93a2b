// A linear change of the learning rate, like torch.optim.lr_scheduler.LinearLR.
#include "engine/schedules/clock.h"
#include "engine/schedules/kinds.h"

namespace dpt {
namespace {

struct LinearLrOptions {
  double start_factor = 1.0 / 3.0;
  double end_factor = 1.0;
  std::int64_t total_iters = 5;  ///< 0 = until the end of the run
  Pace by = Pace::epoch;
};

const ObjectTable& linear_lr_table() {
  static const ObjectTable the_table = object_table<LinearLrOptions>(
      "linear",
      "Changes the learning rate linearly from start_factor * lr to end_factor * lr within "
      "total_iters epochs (or steps) after the warm-up, like LinearLR. For a linear decay: "
      "start_factor: 1, end_factor: 0.",
      {field("start_factor", &LinearLrOptions::start_factor, "Factor of lr at the start.")
           .range(0, 1)
           .above(0),
       field("end_factor", &LinearLrOptions::end_factor, "Factor of lr at the end.").range(0, 1),
       field("total_iters", &LinearLrOptions::total_iters,
             "Epochs (or steps) of the change; run: until the end of train.epochs, so that "
             "changing the number of epochs changes the curve.")
           .at_least(1)
           .zero_as("run"),
       by_field<LinearLrOptions>()});
  return the_table;
}

LrSchedule make_linear_lr(const Variant& variant, const ScheduledRun& run) {
  const LinearLrOptions options = variant.as<LinearLrOptions>();
  const Clock clock = clock_after_warmup(options.by, run);
  const std::int64_t total = options.total_iters > 0 ? options.total_iters : clock.length;
  return [=, start = options.start_factor, end = options.end_factor,
          lr = run.base_lr](std::int64_t step) {
    const double done = static_cast<double>(clock.at(step, total)) / static_cast<double>(total);
    return lr * (start + (end - start) * done);
  };
}

std::string misfit_of_linear_lr(const Variant& variant, const ScheduledRun& run) {
  const LinearLrOptions options = variant.as<LinearLrOptions>();
  if (options.total_iters == 0) return {};
  return misfit_of_length(
      clock_after_warmup(options.by, run), options.by, "total_iters", options.total_iters,
      options.end_factor > 0 ? fmt::format("the learning rate is {:g} * lr", options.end_factor)
                             : "the learning rate is 0",
      options.end_factor == 0);
}

}  // namespace

ScheduleKind linear_schedule() {
  return {&linear_lr_table(), &make_linear_lr, &misfit_of_linear_lr};
}

}  // namespace dpt
