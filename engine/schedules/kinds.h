// One function per kind of schedule, and the list of them.
#pragma once

#include "engine/schedules/schedule.h"

namespace dpt {

ScheduleKind constant_schedule();
ScheduleKind step_schedule();
ScheduleKind multistep_schedule();
ScheduleKind exponential_schedule();
ScheduleKind polynomial_schedule();
ScheduleKind linear_schedule();
ScheduleKind cosine_schedule();
ScheduleKind cosine_restarts_schedule();
ScheduleKind one_cycle_schedule();
ScheduleKind inverse_sqrt_schedule();
ScheduleKind wsd_schedule();
ScheduleKind plateau_schedule();

/// Returns all schedules, in the order of docs/reference/config.md.
inline std::vector<ScheduleKind> all_schedules() {
  return {constant_schedule(),   step_schedule(),
          multistep_schedule(),  exponential_schedule(),
          polynomial_schedule(), linear_schedule(),
          cosine_schedule(),     cosine_restarts_schedule(),
          one_cycle_schedule(),  inverse_sqrt_schedule(),
          wsd_schedule(),        plateau_schedule()};
}

}  // namespace dpt
