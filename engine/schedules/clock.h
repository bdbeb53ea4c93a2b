// Clock of a schedule: steps or epochs, from the start of the run or from the end of the warm-up.
#pragma once

#include <cstdint>

#include "engine/schedules/schedule.h"

namespace dpt {

/// When the learning rate changes, and the unit of a schedule's lengths: as if PyTorch's
/// scheduler.step() was called after each of them.
enum class Pace : std::uint8_t { epoch, step };
constexpr auto enum_names(Pace) {
  return std::to_array<EnumName<Pace>>({{Pace::epoch, "epoch"}, {Pace::step, "step"}});
}

/// The field `by` of a schedule.
template <class S>
Field by_field() {
  return field("by", &S::by,
               "The unit of the schedule's lengths; the learning rate changes at the beginning of "
               "each.");
}

/// Counts the units before a step.
struct Clock {
  std::int64_t unit = 1;    ///< steps of one
  std::int64_t begin = 0;   ///< units before the clock starts
  std::int64_t length = 1;  ///< units from there to the end of the run, at least 1

  /// Units that are over before `step`, counted from 0. It goes on after the end of the run.
  std::int64_t at(std::int64_t step) const;
  /// The same, but not more than `most`.
  std::int64_t at(std::int64_t step, std::int64_t most) const;
};

/// Counts from the start of the run.
Clock clock_of_run(Pace by, const ScheduledRun& run);
/// Counts from the end of the warm-up; by epochs, from the beginning of the epoch in which it ends,
/// so that the rate changes at the beginning of epochs.
Clock clock_after_warmup(Pace by, const ScheduledRun& run);

/// Returns a sentence if a change of `length` units, which begins with the clock, ends before the
/// run or after it. `field` is its name, `at_end` what holds from its end on; `is_short_bad` is
/// true if an early end is worth a sentence.
std::string misfit_of_length(const Clock& clock, Pace by, const char* field, std::int64_t length,
                             const std::string& at_end, bool is_short_bad);

/// Formats a count: "3 epochs", "1 step".
std::string count_text(std::int64_t count, Pace by);

/// Throws ErrorKind::usage if the lowest learning rate of a schedule is above its highest.
void check_lowest(const Variant& options, const char* field, double lowest, double base_lr);

}  // namespace dpt
