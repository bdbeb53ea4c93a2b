#include "engine/replica/work_partition.h"

#include <algorithm>

#include "kernels/base/divide.h"

namespace dpt {
namespace {

/// Builds the list of WorkActions in a walk over the summation tree. Buffers are allocated like a
/// stack: a tree node's sum is in the lowest-numbered buffer that its shards have used.
class PartitionBuilder {
 public:
  PartitionBuilder(const std::vector<Range>& shards, MicroBatchRule rule, WorkPartition& partition)
      : shards_(shards), rule_(rule), partition_(partition) {}

  /// Appends the actions that leave the tree node's sum in `buffer`. The buffers above `buffer` are
  /// free.
  void node(TreeNode n, int buffer) {
    partition_.buffers = std::max(partition_.buffers, buffer + 1);
    if (n.level == 0) {
      shard(n.first, buffer);
      return;
    }
    node({n.first, n.level - 1}, buffer);
    const TreeNode right{n.first + (std::int64_t{1} << (n.level - 1)), n.level - 1};
    if (right.first >= partition_.shards) return;
    node(right, buffer + 1);
    partition_.actions.push_back({.kind = WorkAction::Kind::add,
                                  .buffer = buffer,
                                  .other = buffer + 1,
                                  .samples = {},
                                  .shard = n.first,
                                  .write = GradWrite::add});
  }

 private:
  void shard(std::int64_t index, int buffer) {
    const Range& samples = shards_[index];
    if (samples.size() == 0) {
      partition_.actions.push_back({.kind = WorkAction::Kind::zero,
                                    .buffer = buffer,
                                    .other = 0,
                                    .samples = samples,
                                    .shard = index,
                                    .write = GradWrite::overwrite});
      return;
    }
    const std::int64_t least = std::min(rule_.least_parts, samples.size());
    const std::int64_t micro_batches =
        std::max(least, ceil_div(samples.size(), rule_.most_samples));
    for (std::int64_t i = 0; i < micro_batches; ++i) {
      const Range part = even_part(samples.size(), micro_batches, i);
      partition_.actions.push_back(
          {.kind = WorkAction::Kind::train,
           .buffer = buffer,
           .other = 0,
           .samples = {samples.begin + part.begin, samples.begin + part.end},
           .shard = index,
           .write = i == 0 ? GradWrite::overwrite : GradWrite::add});
    }
  }

  const std::vector<Range>& shards_;  ///< samples of each shard
  MicroBatchRule rule_;
  WorkPartition& partition_;
};

}  // namespace

WorkPartition partition_batch(std::int64_t samples, const DeviceWeights& device_weights, int rank,
                              std::int64_t shards, MicroBatchRule rule, ShardBuffers buffers) {
  // The device weights decide the sizes of shards in fast mode, and their owners in exact mode. In
  // exact mode a shard never depends on the ranks, so the bits do not either.
  const bool exact = shards > 0;
  const std::vector<Range> shard_samples =
      exact ? proportional_parts(samples, DeviceWeights(static_cast<std::size_t>(shards), 1))
            : proportional_parts(samples, device_weights);
  WorkPartition partition;
  partition.shards = static_cast<std::int64_t>(shard_samples.size());
  for (const Range& shard : shard_samples) partition.shard_sizes.push_back(shard.size());
  if (exact) {
    partition.shards_of_ranks = proportional_parts(shards, device_weights);
  } else {
    for (std::int64_t r = 0; r < partition.shards; ++r) {
      partition.shards_of_ranks.push_back({r, r + 1});
    }
  }
  const Range mine = partition.shards_of_ranks[rank];
  if (mine.size() > 0) {
    partition.samples = {shard_samples[mine.begin].begin, shard_samples[mine.end - 1].end};
  }
  PartitionBuilder builder(shard_samples, rule, partition);
  int buffer = 0;
  std::vector<TreeNode> nodes = maximal_nodes(partition.shards, mine);
  if (buffers == ShardBuffers::one_each) {
    nodes.clear();
    for (std::int64_t shard = mine.begin; shard < mine.end; ++shard) nodes.push_back({shard, 0});
  }
  for (const TreeNode& node : nodes) {
    builder.node(node, buffer);
    partition.parts.push_back({node, buffer});
    ++buffer;
  }
  return partition;
}

std::vector<std::size_t> part_ends(const WorkPartition& partition, bool together) {
  const auto& sizes = partition.shard_sizes;
  const bool one_shard =
      std::count_if(sizes.begin(), sizes.end(), [](std::int64_t size) { return size > 0; }) < 2;
  std::vector<std::size_t> ends, pieces;
  const std::vector<WorkAction>& actions = partition.actions;
  for (std::size_t i = 0; i < actions.size(); ++i) {
    if (actions[i].kind != WorkAction::Kind::train) continue;
    pieces.push_back(i);
    const bool is_last = i + 1 == actions.size() ||
                         actions[i + 1].kind != WorkAction::Kind::train ||
                         actions[i + 1].shard != actions[i].shard;
    if (is_last) ends.push_back(i);
  }
  if (!one_shard) return ends;
  if (together || pieces.size() < 2) return {};
  return {pieces[(pieces.size() - 1) / 2]};
}

std::vector<std::int64_t> micro_batch_sizes(const WorkPartition& partition) {
  std::vector<std::int64_t> sizes;
  for (const WorkAction& action : partition.actions) {
    if (action.kind == WorkAction::Kind::train) sizes.push_back(action.samples.size());
  }
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

}  // namespace dpt
