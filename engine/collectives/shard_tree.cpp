// The tree over S leaves: node (level L, first) stands for the leaves [first, first + 2^L) that
// exist, and its sum is sum(left half) + sum(right half), or sum(left half) alone when no leaf of
// the right half exists. Any evaluation that keeps to these additions gives the same bits.
#include "engine/collectives/shard_tree.h"

#include <algorithm>
#include <cassert>

namespace dpt {
namespace {

Range leaves_of(const TreeNode& node, std::int64_t leaves) {
  return {node.first, std::min(node.first + (std::int64_t{1} << node.level), leaves)};
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

std::vector<TreeNode> maximal_nodes(std::int64_t leaves, Range range) {
  assert(range.begin >= 0 && range.end <= leaves);
  std::vector<TreeNode> nodes;
  for (std::int64_t first = range.begin; first < range.end;) {
    // Grow from the leaf while the parent still starts here and lies inside the range. A root is
    // reached when a node already covers everything.
    TreeNode node{first, 0};
    while (leaves_of(node, leaves).size() < leaves) {
      const TreeNode parent = parent_of(node);
      if (parent.first != first || leaves_of(parent, leaves).end > range.end) break;
      node = parent;
    }
    nodes.push_back(node);
    first = leaves_of(node, leaves).end;
  }
  return nodes;
}

std::vector<TreeAdd> tree_additions(std::int64_t leaves, const std::vector<TreeNode>& nodes) {
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
    assert(nodes[i].first == covered && "the nodes cover the leaves once, left to right");
    covered = leaves_of(nodes[i], leaves).end;
    Waiting top{nodes[i], static_cast<int>(i)};
    while (leaves_of(top.node, leaves).size() < leaves) {
      const TreeNode parent = parent_of(top.node);
      if (leaves_of(parent, leaves).end > covered) break;  // its right half is still to come
      if (parent.first != top.node.first) {
        additions.push_back({stack.back().slot, top.slot});
        top.slot = stack.back().slot;
        stack.pop_back();
      }
      top.node = parent;
    }
    stack.push_back(top);
  }
  assert(covered == leaves);
  assert(stack.size() <= 1);
  return additions;
}

}  // namespace dpt
