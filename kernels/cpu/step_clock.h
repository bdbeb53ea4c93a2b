// The step clock of a CPU, whose calls run immediately.
#pragma once

#include "kernels/step_clock.h"

namespace dpt {

/// Implementations of DeviceQueue::begin_phases and end_phase.
void cpu_begin_phases(PhaseTimes& times);
void cpu_end_phase(PhaseTimes& times, StepPhase phase);

}  // namespace dpt
