#include "engine/schedules/clock.h"

#include <algorithm>

namespace dpt {

std::int64_t Clock::at(std::int64_t step) const {
  return std::max<std::int64_t>(0, step / unit - begin);
}

std::int64_t Clock::at(std::int64_t step, std::int64_t most) const {
  return std::min(at(step), most);
}

Clock clock_of_run(Pace by, const ScheduledRun& run) {
  Clock clock;
  clock.unit = by == Pace::epoch ? run.steps_per_epoch : 1;
  clock.length = std::max<std::int64_t>(1, run.epochs * run.steps_per_epoch / clock.unit);
  return clock;
}

Clock clock_after_warmup(Pace by, const ScheduledRun& run) {
  Clock clock = clock_of_run(by, run);
  clock.begin = run.warmup_steps / clock.unit;
  clock.length = std::max<std::int64_t>(1, clock.length - clock.begin);
  return clock;
}

std::string count_text(std::int64_t count, Pace by) {
  return fmt::format("{} {}{}", count, name_of(by), count == 1 ? "" : "s");
}

std::string misfit_of_length(const Clock& clock, Pace by, const char* field, std::int64_t length,
                             const std::string& at_end, bool is_short_bad) {
  const std::string unit = name_of(by);
  if (length < clock.length && is_short_bad) {
    return fmt::format("{}: {} is shorter than the run: {} from {} {} to the last one, {}", field,
                       count_text(length, by), at_end, unit, clock.begin + length + 1,
                       clock.begin + clock.length);
  }
  if (length > clock.length) {
    return fmt::format(
        "{}: {} is longer than the run, which has {}{}: it never reaches the point where {}", field,
        count_text(length, by), count_text(clock.length, by),
        clock.begin > 0 ? " after the warm-up" : "", at_end);
  }
  return {};
}

void check_lowest(const Variant& options, const char* field, double lowest, double base_lr) {
  if (lowest <= base_lr) return;
  fail(ErrorKind::usage,
       "{}: lr_schedule: expected {} {} of at most the optimizer's lr ({}), found {}",
       options.where.text(), field[0] == 'e' ? "an" : "a", field, base_lr, lowest);
}

}  // namespace dpt
