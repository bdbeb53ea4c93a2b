// The shard tree: every partition into ranges gives the same bits as the whole tree.
#include "engine/collectives/shard_tree.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

namespace dpt {
namespace {

// Computes the sum exactly as the definition says.
float sum_by_definition(const std::vector<float>& shards, std::int64_t first, int level) {
  if (level == 0) return shards[first];
  const std::int64_t half = std::int64_t{1} << (level - 1);
  const float left = sum_by_definition(shards, first, level - 1);
  if (first + half >= static_cast<std::int64_t>(shards.size())) return left;
  return left + sum_by_definition(shards, first + half, level - 1);
}

int root_level(std::int64_t shards) {
  int level = 0;
  while ((std::int64_t{1} << level) < shards) ++level;
  return level;
}

float evaluate(std::int64_t shards, const std::vector<TreeNode>& nodes, std::vector<float> slots) {
  for (const TreeAdd& add : tree_additions(shards, nodes)) {
    slots[add.left] += slots[add.right];
  }
  return slots.front();
}

// Returns values of very different sizes: nearly every other order of additions gives other bits.
std::vector<float> awkward(std::int64_t n, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values(static_cast<std::size_t>(n));
  for (float& value : values) {
    value = (static_cast<float>(random() >> 8) * 0x1p-23F - 1.0F) * (random() % 2 ? 1.0F : 1000.0F);
  }
  return values;
}

// Cuts shards 0..S-1 at `cuts`; each range contributes its maximal nodes, evaluated separately.
void check_split(std::int64_t shards, const std::vector<std::int64_t>& cuts,
                 const std::vector<float>& values) {
  std::vector<TreeNode> nodes;
  std::vector<float> sums;
  std::int64_t covered = 0;
  for (std::size_t r = 0; r + 1 < cuts.size(); ++r) {
    const Range range{cuts[r], cuts[r + 1]};
    std::int64_t inside = range.begin;
    for (const TreeNode& node : maximal_nodes(shards, range)) {
      REQUIRE(node.first == inside);
      REQUIRE(node.first % (std::int64_t{1} << node.level) == 0);
      inside = std::min(node.first + (std::int64_t{1} << node.level), shards);
      REQUIRE(inside <= range.end);
      nodes.push_back(node);
      sums.push_back(sum_by_definition(values, node.first, node.level));
    }
    REQUIRE(inside == range.end);
    covered += range.size();
  }
  REQUIRE(covered == shards);
  REQUIRE(tree_additions(shards, nodes).size() == nodes.size() - 1);
  REQUIRE(evaluate(shards, nodes, sums) == sum_by_definition(values, 0, root_level(shards)));
}

TEST_CASE("even parts cover everything once and differ by at most one") {
  for (std::int64_t n = 0; n <= 40; ++n) {
    for (std::int64_t parts = 1; parts <= 45; ++parts) {
      std::int64_t next = 0;
      for (std::int64_t i = 0; i < parts; ++i) {
        const Range part = even_part(n, parts, i);
        REQUIRE(part.begin == next);
        REQUIRE(part.size() == n / parts + (i < n % parts ? 1 : 0));
        next = part.end;
      }
      REQUIRE(next == n);
    }
  }
}

TEST_CASE("maximal nodes of known ranges") {
  using Nodes = std::vector<TreeNode>;
  CHECK(maximal_nodes(8, {0, 8}) == Nodes{{0, 3}});
  CHECK(maximal_nodes(8, {0, 3}) == Nodes{{0, 1}, {2, 0}});
  CHECK(maximal_nodes(8, {3, 6}) == Nodes{{3, 0}, {4, 1}});
  // The tree is clipped: shard 4 of 5 is its own parent twice over, and the root holds everything.
  CHECK(maximal_nodes(5, {0, 5}) == Nodes{{0, 3}});
  CHECK(maximal_nodes(5, {4, 5}) == Nodes{{4, 2}});
  CHECK(maximal_nodes(6, {4, 6}) == Nodes{{4, 2}});
  CHECK(maximal_nodes(1, {0, 1}) == Nodes{{0, 0}});
  CHECK(maximal_nodes(5, {2, 2}).empty());
  CHECK(maximal_nodes(0, {0, 0}).empty());
}

TEST_CASE("additions of known trees") {
  const auto text = [](std::int64_t shards) {
    std::vector<TreeNode> nodes;
    for (std::int64_t i = 0; i < shards; ++i) nodes.push_back({i, 0});
    std::string out;
    for (const TreeAdd& add : tree_additions(shards, nodes)) {
      out += std::to_string(add.left) + "+" + std::to_string(add.right) + " ";
    }
    return out;
  };
  CHECK(text(1) == "");
  CHECK(text(4) == "0+1 2+3 0+2 ");
  CHECK(text(5) == "0+1 2+3 0+2 0+4 ");
  CHECK(text(7) == "0+1 2+3 0+2 4+5 4+6 0+4 ");
  CHECK(tree_additions(0, {}).empty());
}

TEST_CASE("even cuts: the bits do not depend on the number of ranks") {
  for (std::int64_t shards = 1; shards <= 40; ++shards) {
    for (std::uint32_t seed = 0; seed < 3; ++seed) {
      const std::vector<float> values =
          awkward(shards, seed + 100 * static_cast<std::uint32_t>(shards));
      for (std::int64_t ranks = 1; ranks <= shards + 3; ++ranks) {
        std::vector<std::int64_t> cuts{0};
        for (std::int64_t r = 0; r < ranks; ++r) cuts.push_back(even_part(shards, ranks, r).end);
        check_split(shards, cuts, values);
      }
    }
  }
}

TEST_CASE("all cuts of up to twelve shards, and random cuts of more, empty ranges included") {
  for (std::int64_t shards = 1; shards <= 12; ++shards) {
    const std::vector<float> values = awkward(shards, static_cast<std::uint32_t>(shards));
    for (std::uint32_t mask = 0; mask < (1U << (shards - 1)); ++mask) {
      std::vector<std::int64_t> cuts{0};
      for (std::int64_t i = 1; i < shards; ++i) {
        if (mask >> (i - 1) & 1U) cuts.push_back(i);
      }
      cuts.push_back(shards);
      check_split(shards, cuts, values);
    }
  }
  std::mt19937 random(7);
  for (std::int64_t shards = 13; shards <= 40; ++shards) {
    const std::vector<float> values = awkward(shards, static_cast<std::uint32_t>(shards));
    for (int trial = 0; trial < 200; ++trial) {
      std::vector<std::int64_t> cuts{0, shards};
      for (std::uint32_t i = random() % 8; i > 0; --i) {
        cuts.push_back(
            static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(shards + 1)));
      }
      std::sort(cuts.begin(), cuts.end());
      check_split(shards, cuts, values);
    }
  }
}

TEST_CASE("the values would show a wrong order") {
  // Guards the tests above: left-to-right sums differ from the tree's sums for most of these
  // values.
  int differ = 0;
  for (std::uint32_t seed = 0; seed < 100; ++seed) {
    const std::vector<float> values = awkward(16, seed);
    float naive = 0;
    for (float value : values) naive += value;
    differ += naive != sum_by_definition(values, 0, 4);
  }
  CHECK(differ > 50);
}

}  // namespace
}  // namespace dpt
