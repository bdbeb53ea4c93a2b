// The clock of a CPU, whose calls have run when they return.
#pragma once

#include "kernels/step_clock.h"

namespace dpt {

/// See DeviceQueue::begin_phases and end_phase.
void cpu_begin_phases(PhaseTimes& times);
void cpu_end_phase(PhaseTimes& times, StepPhase phase);

}  // namespace dpt
