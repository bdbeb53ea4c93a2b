// Copies the inputs of a step to the device: its scalars, the indices of its samples and, if the
// data set is not resident on the device, the samples themselves.
//
// A device with a queue may still read the last step's inputs while the host prepares the next
// ones. Therefore the host's side is a ring with one slot per step in flight. Samples alternate
// between two buffers, and their copies overlap with the kernels of the previous step.
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

/// A batch on the device, and the other inputs of its step.
struct StagedBatch {
  DeviceBatch batch;
  DevPtr metrics;  ///< StepMetrics: zeros, and this rank's vote
  DevPtr update;   ///< the UpdateSteps of the step's parameter groups
  int buffer = 0;  ///< index of the sample buffer that holds the batch; 0 if the data is resident
};

/// Used by the replica's thread only.
class InputStaging {
 public:
  /// Maximum number of steps in flight. A slot may be staged again once its step has run.
  static constexpr int kSlots = 8;

  explicit InputStaging(Backend& backend);

  /// Queues the copies for one step. `batch` may be empty (no samples on this rank) and may be
  /// reused after the call. `draws` makes the random draws for the input kernel; may be null.
  StagedBatch stage(int slot, const StepScalars& scalars, const StepMetrics& metrics,
                    const HostBatch& batch, const DataSource& source,
                    std::span<const UpdateStep> update = {}, const InputDraws* draws = nullptr);
  /// Marks the end of the use of `staged`. Call it when everything that reads `staged` is queued.
  void release(const StagedBatch& staged);

  /// Returns how often the memory of the batches was moved. Each move invalidates earlier
  /// addresses.
  std::int64_t moves() const { return moves_; }
  /// Returns the device memory held, in bytes.
  std::size_t memory_bytes() const;
  /// Returns the place of the samples: "resident", "staged", or "" before the first batch.
  std::string placement() const;

 private:
  // A data set on the device. The memory is empty if the data set is too large, or not in host
  // memory.
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
  DeviceMemory block_;  // StepScalars, StepMetrics, UpdateSteps, and the fields of a batch (Layout)
  std::array<Slot, kSlots> slots_;
  std::array<Buffer, 2> buffers_;
  int next_buffer_ = 0;
  std::vector<Resident> resident_;
  std::int64_t moves_ = 0;
};

}  // namespace dpt
