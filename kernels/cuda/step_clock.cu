// Step clock: kernels store the time in device memory, and it is downloaded with the results. A
// captured graph can replay these kernels, but not timed events.
#include "kernels/cuda/step_clock.h"

#include "kernels/cuda/runtime/device_time.cuh"
#include "kernels/cuda/runtime/launch.h"

namespace dpt {
namespace {

__global__ void begin_phases_kernel(PhaseTimes* times) {
  for (int i = 0; i < kStepPhases; ++i) times->spent[i] = 0;
  times->last = device_time();
}

__global__ void end_phase_kernel(PhaseTimes* times, int phase) {
  const std::uint64_t now = device_time();
  times->spent[phase] += now - times->last;
  times->last = now;
}

}  // namespace

void cuda_begin_phases(const CudaContext& context, DevPtr times) {
  launch(begin_phases_kernel, 1, 1, 0, context.stream, device<PhaseTimes>(times));
}

void cuda_end_phase(const CudaContext& context, DevPtr times, StepPhase phase) {
  launch(end_phase_kernel, 1, 1, 0, context.stream, device<PhaseTimes>(times),
         static_cast<int>(phase));
}

}  // namespace dpt
