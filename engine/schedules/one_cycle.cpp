// The 1cycle policy, like torch.optim.lr_scheduler.OneCycleLR over the whole run. It changes the
// learning rate only: PyTorch's cycle_momentum=False.
#include <cmath>
#include <numbers>

#include "engine/schedules/clock.h"
#include "engine/schedules/kinds.h"

namespace dpt {
namespace {

enum class Anneal : std::uint8_t { cos, linear };
constexpr auto enum_names(Anneal) {
  return std::to_array<EnumName<Anneal>>({{Anneal::cos, "cos"}, {Anneal::linear, "linear"}});
}

struct OneCycleOptions {
  std::optional<double> max_lr;  ///< unset = the optimizer's lr
  double pct_start = 0.3;
  Anneal anneal_strategy = Anneal::cos;
  double div_factor = 25.0;
  double final_div_factor = 1e4;
  bool three_phase = false;
  Pace by = Pace::step;
};

std::string check_one_cycle(const OneCycleOptions& options) {
  // In three phases, the first descent is as long as the rise, and both have to fit into the run.
  if (!options.three_phase || options.pct_start <= 0.5) return {};
  return fmt::format("pct_start: expected at most 0.5 with three_phase: true, found {}",
                     options.pct_start);
}

const ObjectTable& one_cycle_table() {
  using S = OneCycleOptions;
  static const ObjectTable the_table = object_table<S>(
      "one_cycle",
      "The learning rate rises from max_lr / div_factor to max_lr and falls to max_lr / "
      "(div_factor * final_div_factor) at the last step of train.epochs, like OneCycleLR with "
      "cycle_momentum=False (the optimizer's momentum is unchanged). The schedule includes its own "
      "warm-up: `warmup` is an error. Changing the number of epochs changes the curve, even when a "
      "run is resumed.",
      {field("max_lr", &S::max_lr, "The highest learning rate; the optimizer's lr if not given.")
           .above(0),
       field("pct_start", &S::pct_start, "Fraction of the run in which the learning rate rises.")
           .range(0, 1),
       field("anneal_strategy", &S::anneal_strategy, "Shape of the rise and of the fall."),
       field("div_factor", &S::div_factor, "Divisor of max_lr that gives the first learning rate.")
           .above(0),
       field("final_div_factor", &S::final_div_factor,
             "Divisor of the first learning rate that gives the last one.")
           .above(0),
       field("three_phase", &S::three_phase,
             "Fall to the first learning rate in as many steps as the rise took, and from there to "
             "the last one; pct_start is then at most 0.5."),
       by_field<S>()},
      &check_one_cycle);
  return the_table;
}

/// Phase of the cycle. `begin` and `end` are in units of the clock and may be fractions.
struct CyclePhase {
  double begin, end, from, to;

  double at(double t, Anneal shape) const {
    // A phase of length 0 is already at its end. (PyTorch divides by zero here.)
    const double share = end > begin ? (t - begin) / (end - begin) : 1.0;
    if (shape == Anneal::linear) return (to - from) * share + from;
    return to + (from - to) / 2.0 * (std::cos(std::numbers::pi * share) + 1.0);
  }
};

LrSchedule make_one_cycle(const Variant& variant, const ScheduledRun& run) {
  const OneCycleOptions options = variant.as<OneCycleOptions>();
  if (run.has_warmup) {
    fail(ErrorKind::usage,
         "{}: lr_schedule: expected no warmup with one_cycle, which begins with a rise of its own "
         "(pct_start, div_factor), found one: remove it",
         variant.where.text());
  }
  const Clock clock = clock_of_run(options.by, run);
  const double highest = options.max_lr.value_or(run.base_lr);
  const double first = highest / options.div_factor;
  const double last = first / options.final_div_factor;
  const double total = static_cast<double>(clock.length);
  const double risen = options.pct_start * total - 1.0;
  std::vector<CyclePhase> phases = {{0.0, risen, first, highest}};
  if (options.three_phase) {
    const double fallen = 2.0 * options.pct_start * total - 2.0;
    phases.push_back({risen, fallen, highest, first});
    phases.push_back({fallen, total - 1.0, first, last});
  } else {
    phases.push_back({risen, total - 1.0, highest, last});
  }
  return [=, shape = options.anneal_strategy](std::int64_t step) {
    const double t = static_cast<double>(clock.at(step, clock.length - 1));
    std::size_t phase = 0;
    while (phase + 1 < phases.size() && t > phases[phase].end) ++phase;
    return phases[phase].at(t, shape);
  };
}

}  // namespace

ScheduleKind one_cycle_schedule() {
  return {&one_cycle_table(), &make_one_cycle};
}

}  // namespace dpt
