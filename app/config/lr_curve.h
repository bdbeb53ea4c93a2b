// The learning rate over a run, as rows of a table.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/schedules/schedule.h"

namespace dpt {

struct LrCurve {
  LrSchedule schedule;
  std::int64_t epochs = 1, steps_per_epoch = 1, warmup_steps = 0;

  std::int64_t steps() const { return epochs * steps_per_epoch; }
  /// Returns the lowest and the highest rate of the steps in [begin, end). If there are many, looks
  /// only at evenly spaced ones. REQUIRES: begin < end.
  std::pair<double, double> range(std::int64_t begin, std::int64_t end) const;
};

/// Returns the steps, counted from 0, that a table shows: those at which the rate changes, and the
/// last. If these are more than `most`, returns evenly spaced steps, which include the first, the
/// last and the end of the warm-up.
std::vector<std::int64_t> rows_of(const LrCurve& curve, std::int64_t most);

}  // namespace dpt
