// The work of one rank on its part of a batch, as a straight-line list: the gradient buffer of each
// range of samples, and the additions of buffers. Fast mode, exact mode, gradient accumulation,
// ragged batches and idle ranks differ only in their lists. See docs/internals/exactness.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/job/device_weights.h"
#include "kernels/backend.h"

namespace dpt {

/// One entry of the list.
struct WorkAction {
  enum class Kind : std::uint8_t {
    train,  ///< forward and backward of `samples` into `buffer`
    zero,   ///< an empty shard: `buffer` = 0
    add     ///< `buffer` += `other`
  };
  Kind kind = Kind::train;
  int buffer = 0;
  int other = 0;
  Range samples;           ///< positions in the batch, never empty for `train`
  std::int64_t shard = 0;  ///< shard of the samples
  GradWrite write = GradWrite::overwrite;
};

/// Assignment of shards to gradient buffers.
enum class ShardBuffers : std::uint8_t {
  reused,   ///< the minimum number of buffers for the tree; shards run one after the other
  one_each  ///< a buffer for each shard, so shards may run at the same time; nothing is added
};

struct WorkPartition {
  Range samples;  ///< the rank's samples, as positions in the batch; may be empty
  std::int64_t shards = 1;
  std::vector<std::int64_t> shard_sizes;  ///< samples of every shard of the batch
  std::vector<Range> shards_of_ranks;     ///< shards of each rank
  std::vector<WorkAction> actions;
  struct Part {
    TreeNode node;
    int buffer;
  };
  std::vector<Part> parts;  ///< contributions of the rank to the all_reduce
  int buffers = 0;          ///< number of gradient buffers used
  int branches = 1;  ///< branches of the device's queue over which the buffers' actions are spread
};

/// Rule for dividing a shard into micro-batches. A shard gets as few as the rule allows.
struct MicroBatchRule {
  // NOLINTNEXTLINE(google-explicit-constructor): a number of samples is the usual rule
  MicroBatchRule(std::int64_t samples, std::int64_t parts = 1)
      : most_samples(samples), least_parts(parts) {}
  std::int64_t most_samples;  ///< maximum size of a micro-batch
  std::int64_t least_parts;   ///< minimum number per shard; fewer if it has fewer samples
};

/// Returns the work of `rank` on a batch of `samples` samples. `device_weights` has one weight per
/// rank. `shards` is as in the config. 0 means fast mode, in which each rank's part of the samples
/// is one shard. N means exact mode, in which N even shards are divided among up to N ranks. The
/// division of a shard into micro-batches, the `train` actions, depends only on its own size and
/// the rule. The sum of all ranks' parts in the order of the tree has the same bits with either
/// value of `buffers`.
WorkPartition partition_batch(std::int64_t samples, const DeviceWeights& device_weights, int rank,
                              std::int64_t shards, MicroBatchRule rule,
                              ShardBuffers buffers = ShardBuffers::reused);

/// Returns the indices of actions after which the action's buffer holds the gradient of a part of
/// the batch. A part is a shard (in fast mode, a replica's samples) or, if the batch is one shard,
/// the first half of its micro-batches. The indices ascend; there are none if this rank has no
/// part. If `together`, all micro-batches of a shard go through a pass together, so half of them
/// have no gradient of their own.
std::vector<std::size_t> part_ends(const WorkPartition& partition, bool together);

/// Returns all sizes of micro-batches in the partition of a batch, ascending, without repetition.
std::vector<std::int64_t> micro_batch_sizes(const WorkPartition& partition);

}  // namespace dpt
