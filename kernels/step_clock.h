// Times of a step's phases, by the clock of the device that runs it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dpt {

/// Phases of a training step, in order: forward with the loss; backward with the sums inside a
/// rank; the sum over ranks, including the wait for other ranks; the update.
enum class StepPhase : std::uint8_t { forward, backward, sum, update };
inline constexpr int kStepPhases = 4;

/// Times of the phases in nanoseconds. DeviceQueue::begin_phases and end_phase write them, in
/// device memory.
struct alignas(64) PhaseTimes {
  std::uint64_t last = 0;  ///< time at which the latest phase began or ended, by the device's clock
  std::uint64_t spent[kStepPhases] = {};
};
static_assert(sizeof(PhaseTimes) == 64);

}  // namespace dpt
