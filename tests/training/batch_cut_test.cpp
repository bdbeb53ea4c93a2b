#include "engine/training/batch_cut.h"

#include <doctest/doctest.h>

#include <map>

using namespace dpt;

namespace {

Shares equal(int ranks) {
  return Shares(static_cast<std::size_t>(ranks), 1);
}

/// Runs a cut with strings for gradients: "+" shows the order of the additions.
std::map<int, std::string> run_symbolically(const BatchCut& cut) {
  std::map<int, std::string> buffers;
  for (const CutAction& action : cut.actions) {
    std::string& to = buffers[action.buffer];
    const std::string piece =
        "[" + std::to_string(action.samples.begin) + "," + std::to_string(action.samples.end) + ")";
    switch (action.kind) {
      case CutAction::Kind::zero:
        to = "0";
        break;
      case CutAction::Kind::train:
        to = action.write == GradWrite::overwrite ? piece : to + piece;
        break;
      case CutAction::Kind::add:
        to = "(" + to + "+" + buffers[action.other] + ")";
        break;
    }
  }
  return buffers;
}

/// The whole sum of all ranks, as the collective would evaluate it.
std::string whole_sum(std::int64_t samples, const Shares& shares, std::int64_t shards,
                      std::int64_t piece) {
  std::vector<TreeNode> nodes;
  std::vector<std::string> sums;
  std::int64_t leaves = 0;
  for (int rank = 0; rank < static_cast<int>(shares.size()); ++rank) {
    const BatchCut cut = cut_batch(samples, shares, rank, shards, piece);
    leaves = cut.leaves;
    auto buffers = run_symbolically(cut);
    for (const BatchCut::Part& part : cut.parts) {
      nodes.push_back(part.node);
      sums.push_back(buffers[part.buffer]);
    }
  }
  for (const TreeAdd& add : tree_additions(leaves, nodes)) {
    sums[add.left] = "(" + sums[add.left] + "+" + sums[add.right] + ")";
  }
  return sums.front();
}

}  // namespace

TEST_CASE("exact mode adds the same things in the same order on any number of ranks") {
  for (const std::int64_t samples : {1, 5, 8, 12, 96, 257}) {
    for (const std::int64_t shards : {1, 2, 3, 5, 7, 8, 13}) {
      const std::string one = whole_sum(samples, equal(1), shards, 8);
      for (int ranks = 2; ranks <= shards; ++ranks) {
        CHECK(whole_sum(samples, equal(ranks), shards, 8) == one);
      }
    }
  }
}

TEST_CASE("exact mode adds the same things in the same order for any shares") {
  for (const std::int64_t samples : {1, 5, 12, 96}) {
    for (const std::int64_t shards : {3, 7, 8}) {
      const std::string one = whole_sum(samples, equal(1), shards, 8);
      for (std::int64_t a = 1; a <= 9; ++a) {
        for (std::int64_t b = 1; b <= 9; ++b) {
          CHECK(whole_sum(samples, {a, b}, shards, 8) == one);
          CHECK(whole_sum(samples, {a, b, 4}, shards, 8) == one);
        }
      }
    }
  }
}

TEST_CASE("fast mode: one leaf a rank, of its share of the samples") {
  CHECK(cut_batch(100, {9, 1}, 0, 0, 256).samples == Range{0, 90});
  CHECK(cut_batch(100, {9, 1}, 1, 0, 256).samples == Range{90, 100});
  CHECK(cut_batch(100, {9, 1}, 1, 0, 256).leaves == 2);
  CHECK(whole_sum(100, {9, 1}, 0, 256) == "([0,90)+[90,100))");
  CHECK(whole_sum(100, {999, 1}, 0, 256) == "([0,100)+0)");
}

TEST_CASE("exact mode: a rank whose share is no shard has no samples and brings nothing") {
  const BatchCut cut = cut_batch(96, {1, 1000}, 0, 8, 16);
  CHECK(cut.samples.size() == 0);
  CHECK(cut.actions.empty());
  CHECK(cut.parts.empty());
}

TEST_CASE("every sample is in exactly one piece, in order, and pieces keep their limit") {
  for (const std::int64_t samples : {1, 7, 96, 256}) {
    for (const std::int64_t shards : {0, 8}) {
      for (int ranks = 1; ranks <= 8; ++ranks) {
        std::int64_t next = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          const BatchCut cut = cut_batch(samples, equal(ranks), rank, shards, 20);
          CHECK((cut.samples.size() == 0 || cut.samples.begin == next));
          for (const CutAction& action : cut.actions) {
            if (action.kind != CutAction::Kind::train) continue;
            CHECK(action.samples.begin == next);
            CHECK(action.samples.size() >= 1);
            CHECK(action.samples.size() <= 20);
            next = action.samples.end;
          }
          CHECK((cut.samples.size() == 0 || cut.samples.end == next));
        }
        CHECK(next == samples);
      }
    }
  }
}

TEST_CASE("a rank without samples still brings a part, of zeros") {
  const BatchCut cut = cut_batch(2, equal(4), 3, 0, 8);
  CHECK(cut.samples.size() == 0);
  REQUIRE(cut.parts.size() == 1);
  REQUIRE(cut.actions.size() == 1);
  CHECK(cut.actions[0].kind == CutAction::Kind::zero);
}

TEST_CASE("gradient buffers grow with the tree's depth, not with the number of shards") {
  CHECK(cut_batch(64, equal(1), 0, 64, 8).buffers <= 7);
  CHECK(cut_batch(64, equal(1), 0, 0, 8).buffers == 1);
}
