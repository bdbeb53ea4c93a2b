#include "engine/replica/results_ring.h"

#include <cassert>

#include "kernels/common/update_outcome.h"

namespace dpt {

ResultsRing::ResultsRing(Backend& backend, std::int64_t part_floats,
                         const DeviceMemory& batch_floats)
    : backend_(backend),
      part_floats_(static_cast<std::size_t>(part_floats)),
      batch_floats_(batch_floats) {
  const std::size_t more = part_floats_ * sizeof(float) + batch_floats.bytes();
  for (Slot& slot : slots_) {
    slot.returned = backend_.allocate_host(sizeof(Returned) + more, "results of a step");
  }
}

void ResultsRing::queue(const StepPlan& plan, DevPtr metrics, DevPtr part_floats, DevPtr scalars,
                        bool measured, DevPtr times) {
  assert(pending() <= kMaxPending);
  Slot& slot = slots_[next_slot()];
  slot.plan = plan;
  auto* returned = reinterpret_cast<Returned*>(slot.returned.get());
  backend_.download(&returned->metrics, metrics, sizeof(StepMetrics));
  if (has_norm(plan)) backend_.download(&returned->scalars, scalars, sizeof(StepScalars));
  slot.has_times = static_cast<bool>(times);
  if (times) backend_.download(&returned->times, times, sizeof(PhaseTimes));
  auto* floats = reinterpret_cast<float*>(returned + 1);
  if (part_floats_ > 0) backend_.download(floats, part_floats, part_floats_ * sizeof(float));
  slot.is_measured = measured;
  if (measured) {
    backend_.download(floats + part_floats_, batch_floats_.ptr(), batch_floats_.bytes());
  }
  slot.mark = backend_.record();
  ++queued_;
}

StepResult ResultsRing::take() {
  assert(pending() > 0);
  const Slot& slot = slots_[taken_ % InputStaging::kSlots];
  backend_.wait(slot.mark);
  const auto* returned = reinterpret_cast<const Returned*>(slot.returned.get());
  ++taken_;
  StepResult result;
  result.step = slot.plan.step;
  result.metrics = returned->metrics;
  // Fractions of correct outputs are summed in fp32: do not let rounding raise the sum above the
  // number of samples.
  SplitSum& right = result.metrics.sums[0];
  if (right.value() > result.metrics.labelled.value()) right = result.metrics.labelled;
  result.lr = slot.plan.lr;
  if (has_norm(slot.plan)) result.grad_norm = returned->scalars.grad_norm;
  if (slot.has_times) {
    result.phases.emplace();
    for (std::size_t i = 0; i < kStepPhases; ++i) {
      (*result.phases)[i] = 1e-9 * static_cast<double>(returned->times.spent[i]);
    }
  }
  const auto* floats = reinterpret_cast<const float*>(returned + 1);
  const std::size_t batch_floats = slot.is_measured ? batch_floats_.bytes() / sizeof(float) : 0;
  result.measured.assign(floats, floats + part_floats_ + batch_floats);
  result.outcome = static_cast<UpdateOutcome>(static_cast<int>(returned->metrics.outcome));
  // A step without trained parameters has no update that could be refused, so decide here.
  if (result.outcome == UpdateOutcome::applied) {
    result.outcome = decide_update(StepScalars{}, result.metrics, UpdateGuard{});
  }
  return result;
}

}  // namespace dpt
