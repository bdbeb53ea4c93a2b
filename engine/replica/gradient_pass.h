// The gradients of a rank's part of a batch. Runs forward and backward of each micro-batch, shard
// by shard, in the order of the rank's WorkPartition.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "engine/collectives/communicator.h"
#include "engine/job/job.h"
#include "engine/job/step.h"
#include "engine/replica/input_staging.h"
#include "engine/replica/lockstep.h"
#include "engine/replica/measurements.h"
#include "engine/replica/pass_memory.h"
#include "engine/replica/work_partition.h"

namespace dpt {

/// Used by the thread of its rank only.
class GradientPass {
 public:
  GradientPass(Backend& backend, Communicator& communicator, const Job& job, PassMemory& memory,
               Measurements& measurements);

  /// Returns the partition of a batch of this size. The first call creates it and allocates the
  /// memory that it needs.
  const WorkPartition& partition_for(std::int64_t global_batch);
  /// Returns the largest number of shards of exact mode processed at the same time so far.
  int branches() const;

  /// Queues the passes. The buffers of partition.parts then hold the sums of gradients and metrics.
  /// `after_node`, if set, is called after each node of the pass that completes these sums. `times`
  /// is the PhaseTimes for the end of forward and backward, or null; if shards run at the same
  /// time, forward covers only branch 0. Returns false if `gives_up` (null: never) returned true
  /// between two micro-batches. The sums are then meaningless, but the caller must still sum over
  /// ranks.
  bool compute(const WorkPartition& partition, const StagedBatch& staged, const PassParams& params,
               DevPtr times, const std::function<void(int node)>& after_node,
               const StopQuestion* gives_up = nullptr);
  /// Returns the maximum number of samples in a micro-batch so far; 0 before the first partition.
  std::int64_t micro_batch() const;
  /// Returns true if micro-batches are smaller than the Job's for lack of device memory.
  bool is_short_of_memory() const { return short_of_memory_; }
  /// Returns true if `compute` waits for sums of statistics over ranks. A captured graph cannot
  /// contain such a wait.
  bool sums_over_ranks() const { return lockstep_.couples_shards(); }

  /// Returns the device memory held in addition to PassMemory's, in bytes.
  std::size_t memory_bytes() const { return lockstep_.memory_bytes(); }

 private:
  WorkPartition cut(std::int64_t global_batch, ShardBuffers buffers, std::int64_t most) const;
  std::int64_t most_samples(std::int64_t global_batch);
  static std::int64_t micro_batches(const WorkPartition& partition);
  std::size_t needed_beside(std::int64_t samples) const;
  /// Returns the number of queue branches in which to process the shards of a partition at the same
  /// time: as many branches as fit into memory. REQUIRES: each shard has its own buffer.
  int branches_for(const WorkPartition& partition);
  /// Returns the number of actions, starting with `first`, that go through a pass together.
  std::size_t together_from(const WorkPartition& partition, std::size_t first) const;
  /// Returns the maximum memory that pieces keep while they go through a pass together.
  std::size_t kept_bytes(const WorkPartition& partition);
  void begin_buffer(const WorkPartition& partition, const WorkAction& action,
                    const StagedBatch& staged);
  bool train_pieces(const WorkPartition& partition, const std::function<void(int)>& after_node,
                    const StopQuestion* gives_up);
  /// Measures the parts of the batch that `count` actions, starting with `first`, have completed.
  void measure_parts(const WorkPartition& partition, std::size_t first, std::size_t count);

  Backend& backend_;
  Communicator& communicator_;
  const Job& job_;
  PassMemory& memory_;
  Lockstep lockstep_;
  Measurements& measurements_;
  std::map<std::int64_t, WorkPartition> partitions_;
  bool short_of_memory_ = false;
  std::vector<Piece> pieces_;  ///< micro-batches of the current pass
};

}  // namespace dpt
