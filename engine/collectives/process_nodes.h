// What each process of a world contributes to a sum: the maximal nodes of the shard tree whose
// shards are all its own, and how they are made of its ranks' parts. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/collectives/shard_tree.h"

namespace dpt {

/// A node that this process contributes.
struct OwnNode {
  Range parts;                     ///< of the parts of its ranks, in rank order, that it is made of
  std::vector<TreeAdd> additions;  ///< which make it in the first of them; slots count from there
};

struct ProcessNodes {
  std::int64_t shards = 0;                          ///< of the tree in which the nodes stand
  std::vector<std::vector<TreeNode>> of_processes;  ///< in shard order
  std::vector<OwnNode> own;                         ///< as of_processes[process]
};

/// `shards_of_ranks`: over all processes, empty = one each; `ranks_of`: how many each process has;
/// `part_nodes`: of process `process`, in rank order. In `any_order`, a process with shards
/// contributes one node: the sum of its parts from left to right, a leaf of a tree over such
/// processes. Throws ErrorKind::peer when the parts do not cover the process' shards.
ProcessNodes process_nodes(std::int64_t shards, std::span<const Range> shards_of_ranks,
                           std::span<const int> ranks_of, int process,
                           const std::vector<TreeNode>& part_nodes, bool any_order);

}  // namespace dpt
