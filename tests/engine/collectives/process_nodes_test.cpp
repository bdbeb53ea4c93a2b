// The nodes that each process contributes to a sum. They are built from the parts of its ranks, and
// the nodes of all processes together cover every shard once.
#include "engine/collectives/process_nodes.h"

#include <doctest/doctest.h>

#include "kernels/base/error.h"

namespace dpt {
namespace {

std::vector<TreeNode> nodes_of_ranks(std::int64_t shards, const std::vector<Range>& owners,
                                     std::size_t first, std::size_t count) {
  std::vector<TreeNode> all;
  for (std::size_t r = first; r < first + count; ++r) {
    for (const TreeNode& node : maximal_nodes(shards, owners[r])) all.push_back(node);
  }
  return all;
}

TEST_CASE("Two halves of a tree are one node each, whatever their ranks have") {
  const std::vector<Range> owners = {{0, 1}, {1, 4}, {4, 6}, {6, 8}};
  const std::vector<int> layout = {2, 2};
  const ProcessNodes first =
      process_nodes(8, owners, layout, 0, nodes_of_ranks(8, owners, 0, 2), false);
  CHECK(first.shards == 8);
  REQUIRE(first.of_processes.size() == 2);
  CHECK(first.of_processes[0] == std::vector<TreeNode>{{0, 2}});
  CHECK(first.of_processes[1] == std::vector<TreeNode>{{4, 2}});
  REQUIRE(first.own.size() == 1);
  // Shard 0, shard 1 and shards 2 to 3: (0 + 1) + 2..3.
  CHECK(first.own[0].parts.size() == 3);
  REQUIRE(first.own[0].additions.size() == 2);
  CHECK(first.own[0].additions[0].left == 0);
  CHECK(first.own[0].additions[0].right == 1);
  CHECK(first.own[0].additions[1].right == 2);
}

TEST_CASE("Nodes of all processes cover the shards once, in every order of ranks") {
  for (const std::int64_t shards : {1, 5, 7, 8, 12}) {
    for (const std::vector<int>& layout : {std::vector<int>{1, 1}, {2, 1}, {1, 3, 1}, {2, 2, 2}}) {
      int ranks = 0;
      for (const int count : layout) ranks += count;
      std::vector<Range> owners;
      for (int r = 0; r < ranks; ++r) owners.push_back(even_part(shards, ranks, r));
      int first = 0;
      for (std::size_t p = 0; p < layout.size(); ++p) {
        const auto parts = nodes_of_ranks(shards, owners, static_cast<std::size_t>(first),
                                          static_cast<std::size_t>(layout[p]));
        const ProcessNodes nodes =
            process_nodes(shards, owners, layout, static_cast<int>(p), parts, false);
        std::vector<TreeNode> all;
        for (const auto& of_process : nodes.of_processes) {
          all.insert(all.end(), of_process.begin(), of_process.end());
        }
        CHECK(problem_of_cover(shards, {0, shards}, all) == "");
        CHECK(nodes.own.size() == nodes.of_processes[p].size());
        std::int64_t used = 0;
        for (const OwnNode& own : nodes.own) {
          CHECK(own.parts.begin == used);
          CHECK(static_cast<std::int64_t>(own.additions.size()) == own.parts.size() - 1);
          used = own.parts.end;
        }
        CHECK(used == static_cast<std::int64_t>(parts.size()));
        first += layout[p];
      }
    }
  }
}

TEST_CASE("In any order a process with shards contributes one node, and one without none") {
  const std::vector<Range> owners = {{0, 1}, {1, 2}, {2, 3}, {3, 3}, {3, 4}};
  const std::vector<int> layout = {3, 1, 1};
  const ProcessNodes nodes = process_nodes(4, owners, layout, 0, {{0, 0}, {1, 0}, {2, 0}}, true);
  CHECK(nodes.shards == 2);
  CHECK(nodes.of_processes[0] == std::vector<TreeNode>{{0, 0}});
  CHECK(nodes.of_processes[1].empty());
  CHECK(nodes.of_processes[2] == std::vector<TreeNode>{{1, 0}});
  REQUIRE(nodes.own.size() == 1);
  CHECK(nodes.own[0].additions.size() == 2);
  CHECK(process_nodes(4, owners, layout, 1, {}, true).own.empty());
}

TEST_CASE("Parts of other shards than the process' are refused") {
  const std::vector<int> layout = {1, 1};
  CHECK_THROWS_WITH_AS(process_nodes(2, {}, layout, 1, {{0, 0}}, false),
                       doctest::Contains("cover shards 1 to 1 once"), Error);
  CHECK_THROWS_AS(process_nodes(2, {}, layout, 0, {}, false), Error);
  CHECK_THROWS_AS(process_nodes(2, {}, layout, 0, {{0, 0}, {1, 0}}, true), Error);
}

}  // namespace
}  // namespace dpt
