#include "engine/training/results_ring.h"

#include <cassert>
#include <cmath>

namespace dpt {

ResultsRing::ResultsRing(Backend& backend) : backend_(backend) {
  for (Slot& slot : slots_) {
    slot.returned = backend_.allocate_host(sizeof(Returned), "results of a step");
  }
}

void ResultsRing::queue(const StepPlan& plan, DevPtr metrics, DevPtr scalars) {
  assert(pending() <= kMostPending);
  Slot& slot = slots_[static_cast<std::size_t>(next_slot())];
  slot.plan = plan;
  auto* returned = reinterpret_cast<Returned*>(slot.returned.get());
  backend_.download(&returned->metrics, metrics, sizeof(StepMetrics));
  if (plan.want_grad_norm) backend_.download(&returned->scalars, scalars, sizeof(StepScalars));
  slot.mark = backend_.record();
  ++queued_;
}

StepResult ResultsRing::take() {
  assert(pending() > 0);
  const Slot& slot = slots_[static_cast<std::size_t>(taken_ % InputStaging::kSlots)];
  backend_.wait(slot.mark);
  const auto* returned = reinterpret_cast<const Returned*>(slot.returned.get());
  ++taken_;
  StepResult result;
  result.step = slot.plan.step;
  result.metrics = returned->metrics;
  result.lr = slot.plan.lr;
  if (slot.plan.want_grad_norm) result.grad_norm = returned->scalars.grad_norm;
  result.outcome = static_cast<UpdateOutcome>(static_cast<int>(returned->metrics.outcome));
  // A step without parameters to update has no update that could be refused.
  if (result.outcome == UpdateOutcome::applied && !std::isfinite(result.metrics.loss_sum)) {
    result.outcome = UpdateOutcome::refused;
  }
  return result;
}

}  // namespace dpt
