// The results of steps in flight. Each is copied to host memory of its own, so that the next steps
// can be queued before it is read.
#pragma once

#include <array>
#include <cstdint>

#include "engine/job/step.h"
#include "engine/replica/input_staging.h"
#include "kernels/backend.h"

namespace dpt {

/// Used by the replica's thread only.
class ResultsRing {
 public:
  /// `part_floats` and `batch_floats` are those of Measurements. `part_floats` is 0 on ranks whose
  /// results are not logged.
  ResultsRing(Backend& backend, std::int64_t part_floats, const DeviceMemory& batch_floats);

  /// Maximum number of results that may be pending when a step is queued.
  static constexpr std::int64_t kMaxPending = InputStaging::kSlots - 1;
  std::int64_t pending() const { return queued_ - taken_; }
  /// Returns the slot of the next step in every ring of host memory. A slot is free once its result
  /// was taken, so the host never overwrites what a queued copy may still read.
  int next_slot() const { return static_cast<int>(queued_ % InputStaging::kSlots); }

  /// Queues the copies of a step's results on the device: StepMetrics and the part floats after
  /// them, StepScalars, the batch floats if `measured`, and PhaseTimes unless `times` is null.
  void queue(const StepPlan& plan, DevPtr metrics, DevPtr part_floats, DevPtr scalars,
             bool measured, DevPtr times);
  /// Returns the oldest result. Waits for it if necessary. REQUIRES: pending() > 0.
  StepResult take();
  /// Discards all pending results. REQUIRES: all queued work of the device has completed.
  void drop() { taken_ = queued_; }

 private:
  struct Returned {
    StepMetrics metrics;
    StepScalars scalars;  ///< including grad_norm, if requested
    PhaseTimes times;
  };
  struct Slot {
    StepPlan plan;
    bool is_measured = false, has_times = false;
    HostMemory returned{nullptr, nullptr};  ///< a Returned, part floats, batch floats
    std::uint64_t mark = 0;
  };

  Backend& backend_;
  /// Returns true if the result of a step needs its grad_norm.
  bool has_norm(const StepPlan& plan) const { return plan.want_grad_norm || part_floats_ > 0; }

  std::size_t part_floats_;
  const DeviceMemory& batch_floats_;
  std::array<Slot, InputStaging::kSlots> slots_;
  std::int64_t queued_ = 0, taken_ = 0;
};

}  // namespace dpt
