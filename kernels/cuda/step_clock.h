// The clock of a GPU, read in the order of its queue.
#pragma once

#include "kernels/cuda/runtime/context.h"
#include "kernels/step_clock.h"

namespace dpt {

/// Implementations of DeviceQueue::begin_phases and end_phase.
void cuda_begin_phases(const CudaContext& context, DevPtr times);
void cuda_end_phase(const CudaContext& context, DevPtr times, StepPhase phase);

}  // namespace dpt
