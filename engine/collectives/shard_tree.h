// The partition of a batch into shards, and the fixed binary tree in which their gradients are
// added. See docs/internals/exactness.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/backend.h"

namespace dpt {

/// Returns part `i` of `n` items divided into `parts` contiguous parts, as equal as possible: the
/// first (n mod parts) of them have one more item. May be empty if there are fewer items than
/// parts.
Range even_part(std::int64_t n, std::int64_t parts, std::int64_t i);

/// Node of the tree over shards 0..shards-1: it stands for those of the shards [first, first +
/// 2^level) that exist. first is a multiple of 2^level.
struct TreeNode {
  std::int64_t first = 0;
  int level = 0;
  bool operator==(const TreeNode&) const = default;
};

/// Returns the maximal nodes whose shards all lie in `range`, left to right. A node is complete
/// when all of its *existing* shards are in it, so the range [0, shards) is always one node, the
/// root.
std::vector<TreeNode> maximal_nodes(std::int64_t shards, Range range);

/// Returns the reason why `nodes` do not cover each shard in `range` exactly once, from left to
/// right; empty if they do.
std::string problem_of_cover(std::int64_t shards, Range range, const std::vector<TreeNode>& nodes);

/// Returns the additions that sum `nodes` (which together cover all shards once, left to right)
/// into slot 0, in the order of the tree: the result depends only on the shards.
std::vector<TreeAdd> tree_additions(std::int64_t shards, const std::vector<TreeNode>& nodes);

}  // namespace dpt
