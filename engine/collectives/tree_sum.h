// The sum of the parts of all ranks, in the order of the shard tree.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/collectives/communicator.h"

namespace dpt {

/// Keeps the additions between calls, because the nodes are the same at nearly every step.
class TreeSum {
 public:
  /// Starts a new list of parts. Then call add() for the parts of each rank, in rank order, and
  /// ready().
  void start(std::int64_t shards);
  void add(std::span<const PartialSum> parts);
  /// Completes the list. Returns an error unless the parts cover the shards once, left to right.
  std::string ready();

  /// Sums the elements `range` of all parts into the first part's memory and copies them to each of
  /// `outs`. Overwrites these elements of the other parts. Queued on `backend`.
  void run(Backend& backend, Range range, std::span<const DevPtr> outs);

 private:
  std::int64_t shards_ = 0;
  bool same_ = false;  // true while the list equals the one for which additions_ was computed
  std::vector<TreeNode> nodes_;
  std::vector<DevPtr> data_;
  std::vector<TreeAdd> additions_;
  std::vector<DevPtr> parts_at_, outs_at_;  // members, so that a step allocates nothing
};

}  // namespace dpt
