// Contributions of the processes of a world to a sum: for each process, the maximal nodes of the
// shard tree whose shards all belong to it; for this process, also the parts of its ranks that make
// up each node. Pure functions.
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
  std::vector<TreeAdd> additions;  ///< additions into the first of these parts (slot 0)
};

struct ProcessNodes {
  std::int64_t shards = 0;  ///< number of leaves of the tree to which the nodes belong
  std::vector<std::vector<TreeNode>> of_processes;  ///< in shard order
  std::vector<OwnNode> own;  ///< the nodes of this process, as in of_processes
};

/// Returns the nodes of all processes. `shards_of_ranks`: the shards of each rank of all processes,
/// empty = one each; `ranks_of`: number of ranks of each process; `part_nodes`: the nodes of the
/// parts of process `process`, in rank order. With `any_order`, a process with shards contributes
/// one node, the sum of its parts from left to right. That node is a leaf of a tree over the
/// processes with shards. Throws ErrorKind::peer if the parts do not cover the process's shards.
ProcessNodes process_nodes(std::int64_t shards, std::span<const Range> shards_of_ranks,
                           std::span<const int> ranks_of, int process,
                           const std::vector<TreeNode>& part_nodes, bool any_order);

}  // namespace dpt
