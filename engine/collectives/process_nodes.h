// Contributions of the processes of a world to a sum: for each process the maximal nodes of the
// shard tree whose shards are all its own, and their composition from its ranks' parts. Pure
// functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/collectives/shard_tree.h"

namespace dpt {

/// A node that this process contributes.
struct OwnNode {
  Range parts;                     ///< parts of its ranks, in rank order, that make up the node
  std::vector<TreeAdd> additions;  ///< which make it in the first of them; slots count from there
};

struct ProcessNodes {
  std::int64_t shards = 0;  ///< number of leaves of the tree to which the nodes belong
  std::vector<std::vector<TreeNode>> of_processes;  ///< in shard order
  std::vector<OwnNode> own;                         ///< the entry of of_processes for this process
};

/// `shards_of_ranks`: over all processes, empty = one each; `ranks_of`: how many each process has;
/// `part_nodes`: of process `process`, in rank order. In `any_order`, a process with shards
/// contributes one node: the sum of its parts from left to right, a leaf of a tree over such
/// processes. Throws ErrorKind::peer when the parts do not cover the process' shards.
ProcessNodes process_nodes(std::int64_t shards, std::span<const Range> shards_of_ranks,
                           std::span<const int> ranks_of, int process,
                           const std::vector<TreeNode>& part_nodes, bool any_order);

}  // namespace dpt
