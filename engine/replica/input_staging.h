// Copies the inputs of a step to the device: its scalars, the indices of its samples and, if the
// data set is not resident on the device, the samples themselves.
//
// A device that queues may still read the last step's inputs while the host prepares the next ones.
// So the host's side is a ring with one slot per step in flight, and samples go to two buffers in
// turn, by copies that overlap with the kernels of the step before.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/data/loader.h"
#include "engine/graph/executor.h"
#include "kernels/backend.h"

namespace dpt {

/// A batch on the device, and what a step begins with.
struct StagedBatch {
  DeviceBatch batch;
  DevPtr metrics;  ///< StepMetrics: zeros, and this rank's vote
  DevPtr update;   ///< the UpdateSteps of the step's parameter groups
  int buffer = 0;  ///< which of the sample buffers it lies in; 0 for data on the device
};

/// Used by the thread of its backend.
class InputStaging {
 public:
  /// Steps in flight at most; `stage` may be called for a slot again once its step has run.
  static constexpr int kSlots = 8;

  explicit InputStaging(Backend& backend);

  /// Queues the copies for one step. `batch` may be empty (no samples on this rank) and is not
  /// needed any more on return. `draws`, if there are any, are those of its input kernel.
  StagedBatch stage(int slot, const StepScalars& scalars, const StepMetrics& metrics,
                    const HostBatch& batch, const DataSource& source,
                    std::span<const UpdateStep> update = {}, const InputDraws* draws = nullptr);
  /// To be called when everything that reads `staged` is queued.
  void release(const StagedBatch& staged);

  /// Counts how often the memory of the batches was moved, which invalidates earlier addresses.
  std::int64_t moves() const { return moves_; }
  /// Device memory held, in bytes.
  std::size_t memory_bytes() const;
  /// Returns the place of the samples: "resident", "staged", or "" before the first batch.
  std::string placement() const;

 private:
  // A data set as it lies on the device; without pixels when it is too large for that.
  struct Resident {
    const DataSource* source;
    DeviceMemory pixels, labels, targets;
  };
  struct Buffer {
    DeviceMemory pixels, labels, targets;
    std::unique_ptr<Event> filled, free;
  };
  struct Slot {
    HostMemory block{nullptr, nullptr}, pixels{nullptr, nullptr}, labels{nullptr, nullptr},
        targets{nullptr, nullptr};
    std::size_t pixel_bytes = 0, label_bytes = 0, target_bytes = 0;
  };

  const Resident& resident(const DataSource& source);
  void grow(DeviceMemory& memory, std::size_t bytes, const char* what);
  std::byte* grow(HostMemory& memory, std::size_t& have, std::size_t bytes, const char* what);
  void stage_samples(Slot& slot, const HostBatch& batch, const DataSource& source,
                     StagedBatch& staged);

  Backend& backend_;
  DeviceMemory block_;  // StepScalars, StepMetrics, UpdateSteps, and what a batch has (Layout)
  std::array<Slot, kSlots> slots_;
  std::array<Buffer, 2> buffers_;
  int next_buffer_ = 0;
  std::vector<Resident> resident_;
  std::int64_t moves_ = 0;
};

}  // namespace dpt
