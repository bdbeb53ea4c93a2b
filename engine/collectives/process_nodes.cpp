#include "engine/collectives/process_nodes.h"

#include "kernels/base/error.h"

namespace dpt {
namespace {

/// Returns the shards of each process.
std::vector<Range> shards_of_processes(std::span<const Range> shards_of_ranks,
                                       std::span<const int> ranks_of) {
  std::vector<Range> result;
  std::int64_t rank = 0;
  for (const int count : ranks_of) {
    Range shards{rank, rank + count};
    if (!shards_of_ranks.empty()) {
      shards = {shards_of_ranks[rank].begin, shards_of_ranks[rank + count - 1].end};
    }
    result.push_back(shards);
    rank += count;
  }
  return result;
}

/// Returns `part`, a node of the whole tree, as a node of the subtree of `node`, whose shards are
/// counted from 0.
TreeNode within(const TreeNode& part, const TreeNode& node) {
  return {part.first - node.first, part.level};
}

std::vector<TreeAdd> left_to_right(std::int64_t parts) {
  std::vector<TreeAdd> additions;
  for (std::int64_t i = 1; i < parts; ++i) additions.push_back({0, static_cast<int>(i)});
  return additions;
}

OwnNode make_own(std::int64_t shards, const TreeNode& node, Range parts,
                 const std::vector<TreeNode>& part_nodes) {
  const std::int64_t end = std::min(node.first + (std::int64_t{1} << node.level), shards);
  std::vector<TreeNode> inside;
  for (std::int64_t i = parts.begin; i < parts.end; ++i) {
    inside.push_back(within(part_nodes[i], node));
  }
  return {parts, tree_additions(end - node.first, inside)};
}

}  // namespace

ProcessNodes process_nodes(std::int64_t shards, std::span<const Range> shards_of_ranks,
                           std::span<const int> ranks_of, int process,
                           const std::vector<TreeNode>& part_nodes, bool any_order) {
  const std::vector<Range> ranges = shards_of_processes(shards_of_ranks, ranks_of);
  const Range mine = ranges[process];
  if (mine.size() > 0 || !part_nodes.empty()) {
    const std::string wrong = problem_of_cover(shards, mine, part_nodes);
    if (!wrong.empty()) fail(ErrorKind::peer, "all_reduce in process {}: {}", process, wrong);
  }
  const auto parts = static_cast<std::int64_t>(part_nodes.size());
  ProcessNodes result;
  if (any_order) {
    for (const Range& range : ranges) {
      result.of_processes.emplace_back();
      if (range.size() > 0) result.of_processes.back().push_back({result.shards++, 0});
    }
    if (mine.size() > 0) result.own.push_back({{0, parts}, left_to_right(parts)});
    return result;
  }
  result.shards = shards;
  for (const Range& range : ranges) result.of_processes.push_back(maximal_nodes(shards, range));
  std::int64_t part = 0;
  for (const TreeNode& node : result.of_processes[process]) {
    const std::int64_t begin = part;
    const std::int64_t end = node.first + (std::int64_t{1} << node.level);
    while (part < parts && part_nodes[part].first < end) ++part;
    result.own.push_back(make_own(shards, node, {begin, part}, part_nodes));
  }
  return result;
}

}  // namespace dpt
