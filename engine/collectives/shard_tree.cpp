// The tree over S shards: node (level L, first) stands for those of the shards [first, first + 2^L)
// that exist. Its sum is sum(left half) + sum(right half), or sum(left half) alone if no shard of
// the right half exists. Any evaluation that performs exactly these additions gives the same bits.
#include "engine/collectives/shard_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

namespace dpt {
namespace {

Range shards_of(const TreeNode& node, std::int64_t shards) {
  return {node.first, std::min(node.first + (std::int64_t{1} << node.level), shards)};
}

TreeNode parent_of(const TreeNode& node) {
  const std::int64_t span = std::int64_t{1} << (node.level + 1);
  return {node.first / span * span, node.level + 1};
}

}  // namespace

Range even_part(std::int64_t n, std::int64_t parts, std::int64_t i) {
  assert(n >= 0 && parts >= 1 && i >= 0 && i < parts);
  const std::int64_t small = n / parts, larger = n % parts;
  const std::int64_t begin = i * small + std::min(i, larger);
  return {begin, begin + small + (i < larger ? 1 : 0)};
}

std::vector<TreeNode> maximal_nodes(std::int64_t shards, Range range) {
  assert(range.begin >= 0 && range.end <= shards);
  std::vector<TreeNode> nodes;
  for (std::int64_t first = range.begin; first < range.end;) {
    // Grow from the shard while the parent still starts here and lies inside the range. Stop at the
    // root, which covers all shards.
    TreeNode node{first, 0};
    while (shards_of(node, shards).size() < shards) {
      const TreeNode parent = parent_of(node);
      if (parent.first != first || shards_of(parent, shards).end > range.end) break;
      node = parent;
    }
    nodes.push_back(node);
    first = shards_of(node, shards).end;
  }
  return nodes;
}

std::string problem_of_cover(std::int64_t shards, Range range, const std::vector<TreeNode>& nodes) {
  if (shards < 1) return fmt::format("expected at least one shard, found {}", shards);
  std::int64_t covered = range.begin;
  for (const TreeNode& node : nodes) {
    const bool aligned =
        node.level >= 0 && node.level < 62 && node.first % (std::int64_t{1} << node.level) == 0;
    if (!aligned || node.first != covered || covered >= range.end) {
      return fmt::format(
          "expected parts that cover shards {} to {} once, in rank order; found the node of shard "
          "{}, level {} after {} shards",
          range.begin, range.end - 1, node.first, node.level, covered - range.begin);
    }
    covered = shards_of(node, shards).end;
  }
  if (covered == range.end) return {};
  return fmt::format("expected parts that cover shards {} to {} once; they end after {} shards",
                     range.begin, range.end - 1, covered - range.begin);
}

std::vector<TreeAdd> tree_additions(std::int64_t shards, const std::vector<TreeNode>& nodes) {
  // Works like a binary counter: a finished node waits on the stack for its right sibling. Nodes
  // come left to right, so two that belong together are neighbours.
  struct Waiting {
    TreeNode node;
    int slot;
  };
  std::vector<TreeAdd> additions;
  std::vector<Waiting> stack;
  std::int64_t covered = 0;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    assert(nodes[i].first == covered && "the nodes cover the shards once, left to right");
    covered = shards_of(nodes[i], shards).end;
    Waiting top{nodes[i], static_cast<int>(i)};
    while (shards_of(top.node, shards).size() < shards) {
      const TreeNode parent = parent_of(top.node);
      if (shards_of(parent, shards).end > covered) break;  // its right half follows later
      if (parent.first != top.node.first) {
        additions.push_back({stack.back().slot, top.slot});
        top.slot = stack.back().slot;
        stack.pop_back();
      }
      top.node = parent;
    }
    stack.push_back(top);
  }
  assert(covered == shards);
  assert(stack.size() <= 1);
  return additions;
}

}  // namespace dpt
