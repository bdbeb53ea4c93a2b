// A decay at each milestone, like torch.optim.lr_scheduler.MultiStepLR.
#include <algorithm>
#include <cmath>
#include <iterator>

#include <fmt/ranges.h>

#include "engine/schedules/clock.h"
#include "engine/schedules/kinds.h"

namespace dpt {
namespace {

struct MultistepOptions {
  std::vector<std::int64_t> milestones;
  double gamma = 0.1;
  Pace by = Pace::epoch;
};

std::string check_multistep(const MultistepOptions& options) {
  std::int64_t before = 0;
  for (const std::int64_t milestone : options.milestones) {
    if (milestone <= before) {
      return fmt::format("milestones: expected {}s above 0, increasing, found {}{}",
                         name_of(options.by), milestone,
                         before > 0 ? fmt::format(" after {}", before) : "");
    }
    before = milestone;
  }
  return {};
}

const ObjectTable& multistep_table() {
  static const ObjectTable the_table = object_table<MultistepOptions>(
      "multistep", "Multiplies the learning rate by gamma at each milestone, like MultiStepLR.",
      {field("milestones", &MultistepOptions::milestones,
             "Epochs (or steps) of the run that begin with a decay, counted from 0, in increasing "
             "order.")
           .required(),
       field("gamma", &MultistepOptions::gamma, "Factor of each decay.").above(0),
       by_field<MultistepOptions>()},
      &check_multistep);
  return the_table;
}

LrSchedule make_multistep(const Variant& variant, const ScheduledRun& run) {
  const MultistepOptions& options = variant.as<MultistepOptions>();
  return [=, clock = clock_of_run(options.by, run), lr = run.base_lr](std::int64_t step) {
    const auto& milestones = options.milestones;
    const auto passed = std::upper_bound(milestones.begin(), milestones.end(), clock.at(step));
    return lr * std::pow(options.gamma, static_cast<double>(passed - milestones.begin()));
  };
}

std::string misfit_of_multistep(const Variant& variant, const ScheduledRun& run) {
  const MultistepOptions& options = variant.as<MultistepOptions>();
  const std::int64_t length = clock_of_run(options.by, run).length;
  const auto beyond =
      std::lower_bound(options.milestones.begin(), options.milestones.end(), length);
  if (beyond == options.milestones.end()) return {};
  return fmt::format("milestones: {} {} not reached: the run has {}",
                     fmt::join(beyond, options.milestones.end(), ", "),
                     std::next(beyond) == options.milestones.end() ? "is" : "are",
                     count_text(length, options.by));
}

}  // namespace

ScheduleKind multistep_schedule() {
  return {&multistep_table(), &make_multistep, &misfit_of_multistep};
}

}  // namespace dpt
