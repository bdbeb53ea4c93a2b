// A polynomial decay to zero, like torch.optim.lr_scheduler.PolynomialLR.
#include <cmath>

#include "engine/schedules/clock.h"
#include "engine/schedules/kinds.h"

namespace dpt {
namespace {

struct PolynomialOptions {
  std::int64_t total_iters = 5;  ///< 0 = until the end of the run
  double power = 1.0;
  Pace by = Pace::epoch;
};

const ObjectTable& polynomial_table() {
  static const ObjectTable the_table = object_table<PolynomialOptions>(
      "polynomial",
      "Decays the learning rate to 0 within total_iters epochs (or steps) after the warm-up, like "
      "PolynomialLR: lr * (1 - t / total_iters) ^ power. From then on it is 0.",
      {field("total_iters", &PolynomialOptions::total_iters,
             "Epochs (or steps) of the decay; run: until the end of train.epochs, so that changing "
             "the number of epochs changes the curve.")
           .at_least(1)
           .zero_as("run"),
       field("power", &PolynomialOptions::power, "Exponent of the polynomial.").above(0),
       by_field<PolynomialOptions>()});
  return the_table;
}

LrSchedule make_polynomial(const Variant& variant, const ScheduledRun& run) {
  const PolynomialOptions options = variant.as<PolynomialOptions>();
  const Clock clock = clock_after_warmup(options.by, run);
  const std::int64_t total = options.total_iters > 0 ? options.total_iters : clock.length;
  return [=, power = options.power, lr = run.base_lr](std::int64_t step) {
    const double done = static_cast<double>(clock.at(step, total)) / static_cast<double>(total);
    return lr * std::pow(1.0 - done, power);
  };
}

std::string misfit_of_polynomial(const Variant& variant, const ScheduledRun& run) {
  const PolynomialOptions options = variant.as<PolynomialOptions>();
  if (options.total_iters == 0) return {};
  return misfit_of_length(clock_after_warmup(options.by, run), options.by, "total_iters",
                          options.total_iters, "the learning rate is 0", true);
}

}  // namespace

ScheduleKind polynomial_schedule() {
  return {&polynomial_table(), &make_polynomial, &misfit_of_polynomial};
}

}  // namespace dpt
