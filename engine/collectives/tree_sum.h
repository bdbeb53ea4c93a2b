// The sum of the parts of all ranks, in the order of the shard tree.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/collectives/communicator.h"

namespace dpt {

/// Keeps the additions from call to call, because the nodes are the same at nearly every step.
class TreeSum {
 public:
  /// Starts a new list of parts; then add() for those of each rank, in rank order; then ready().
  void start(std::int64_t shards);
  void add(std::span<const PartialSum> parts);
  /// Returns what is wrong with the parts, or empty: they cover the shards once, left to right.
  std::string ready();

  /// Sums elements [range) of all parts into the first part's memory and copies them to each of
  /// `outs`. The other parts are clobbered there. Queued on `backend`.
  void run(Backend& backend, Range range, std::span<const DevPtr> outs);

 private:
  std::int64_t shards_ = 0;
  bool same_ = false;  // so far, the list is the one that additions_ was made for
  std::vector<TreeNode> nodes_;
  std::vector<DevPtr> data_;
  std::vector<TreeAdd> additions_;
  std::vector<DevPtr> parts_at_, outs_at_;  // kept, so that a step allocates nothing
};

}  // namespace dpt
