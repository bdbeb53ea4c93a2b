// Clock of a schedule. It counts steps or epochs from the start of the run or from the end of the
// warm-up.
#pragma once

#include <cstdint>

#include "engine/schedules/schedule.h"

namespace dpt {

/// Unit in which the lengths of a schedule are given. The schedule also changes the learning rate
/// at this interval, as if PyTorch's scheduler.step() were called after each step or each epoch.
enum class Pace : std::uint8_t { epoch, step };
constexpr auto enum_names(Pace) {
  return std::to_array<EnumName<Pace>>({{Pace::epoch, "epoch"}, {Pace::step, "step"}});
}

/// Returns the field `by` of a schedule.
template <class S>
Field by_field() {
  return field("by", &S::by,
               "Unit in which the schedule counts; the learning rate changes at the beginning of "
               "each epoch or step.");
}

/// Counts the units (steps or epochs) before a step.
struct Clock {
  std::int64_t unit = 1;    ///< number of steps per unit
  std::int64_t begin = 0;   ///< number of units before the clock starts
  std::int64_t length = 1;  ///< number of units from then to the end of the run, at least 1

  /// Returns the number of complete units before `step`, which is counted from 0. Continues to
  /// count after the end of the run.
  std::int64_t at(std::int64_t step) const;
  /// Returns the same, limited to `most`.
  std::int64_t at(std::int64_t step, std::int64_t most) const;
};

/// Returns a clock that counts from the start of the run.
Clock clock_of_run(Pace by, const ScheduledRun& run);
/// Returns a clock that counts from the end of the warm-up. If it counts epochs, it begins with the
/// epoch in which the warm-up ends, so that the rate changes at the beginning of epochs.
Clock clock_after_warmup(Pace by, const ScheduledRun& run);

/// Returns a sentence if a change of `length` units, which begins when the clock starts, ends
/// before or after the end of the run. `field` is the field that sets the length. `at_end`
/// describes the state after the change. `is_short_bad` is true if an early end deserves a
/// sentence.
std::string misfit_of_length(const Clock& clock, Pace by, const char* field, std::int64_t length,
                             const std::string& at_end, bool is_short_bad);

/// Formats a count: "3 epochs", "1 step".
std::string count_text(std::int64_t count, Pace by);

/// Throws ErrorKind::usage if the lowest learning rate of a schedule is above its highest.
void check_lowest(const Variant& options, const char* field, double lowest, double base_lr);

}  // namespace dpt
