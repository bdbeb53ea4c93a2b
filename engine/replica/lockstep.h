// Runs several micro-batches through one training pass together. Each phase of the pass (see
// engine/graph/memory_schedule.h) runs on all of them before the next begins. Between two phases,
// the statistics computed by the first are merged over a shard, or over the whole batch and all
// ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/collectives/communicator.h"
#include "engine/graph/executor.h"

namespace dpt {

/// A micro-batch on its way through a pass.
struct Piece {
  Executor* executor = nullptr;
  ExecutorBuffers buffers;
  DeviceBatch batch;
  GradWrite write = GradWrite::overwrite;
  std::int64_t shard = 0;  ///< index in the whole batch
};

/// Used by the thread of its rank only; every rank runs the same passes.
class Lockstep {
 public:
  Lockstep(Backend& backend, Communicator& communicator, const Plan& plan);

  /// Returns true if micro-batches of a shard must go through a pass together.
  bool couples_pieces() const { return !coupled_.empty(); }
  /// Returns true if all shards of the batch must go through a pass together, on all ranks.
  bool couples_shards() const { return couples_shards_; }

  std::size_t memory_bytes() const { return slots_.bytes() + all_slots_.bytes(); }

  /// Trains on `pieces`, ordered by shard. These are the pieces of one shard or, with
  /// couples_shards(), all pieces of this rank, possibly none. `shard_sizes` has the number of
  /// samples of every shard of the batch. `after_node` is called for the last piece only. Returns
  /// false if `gives_up` returned true; it is asked before each piece of each phase except the very
  /// first. The rest was then not computed, but the sums with the other ranks were completed.
  bool train(std::span<const Piece> pieces, std::span<const std::int64_t> shard_sizes,
             const std::function<void(int node)>& after_node,
             const std::function<bool()>* gives_up = nullptr);

 private:
  struct Coupled {
    int node = 0;
    std::int64_t channels = 0, positions = 0;
    bool sync = false;
  };

  /// Merges `counts.size()` sets of statistics in tree order with the backend's kernels.
  void merge(bool moments, std::span<const DevPtr> parts, std::span<const double> counts,
             std::span<const DevPtr> outs, std::int64_t channels);
  void merge_over_shard(const Coupled& coupled, bool moments, int phase,
                        std::span<const Piece> pieces);
  void merge_over_batch(const Coupled& coupled, bool moments, int phase,
                        std::span<const Piece> pieces, std::span<const std::int64_t> shard_sizes);

  Backend& backend_;
  Communicator& communicator_;
  const Plan& plan_;
  std::vector<Coupled> coupled_;  ///< in the order of Plan::nodes
  bool couples_shards_ = false;
  DeviceMemory slots_, all_slots_;  ///< statistics of each shard: this rank's, and those of all
                                    ///< ranks
  // Members, so that a step allocates little.
  std::vector<DevPtr> parts_, outs_, slots_of_shards_;
  std::vector<double> counts_;
  std::vector<TreeNode> leaves_;
  std::vector<MomentMerge> merges_;
};

}  // namespace dpt
