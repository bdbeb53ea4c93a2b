#include "kernels/cpu/step_clock.h"

#include <chrono>

namespace dpt {
namespace {

std::uint64_t host_time() {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::steady_clock::now().time_since_epoch())
                                        .count());
}

}  // namespace

void cpu_begin_phases(PhaseTimes& times) {
  times = PhaseTimes{};
  times.last = host_time();
}

void cpu_end_phase(PhaseTimes& times, StepPhase phase) {
  const std::uint64_t now = host_time();
  times.spent[static_cast<std::size_t>(phase)] += now - times.last;
  times.last = now;
}

}  // namespace dpt
