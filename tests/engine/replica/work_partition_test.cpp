#include "engine/replica/work_partition.h"

#include <doctest/doctest.h>

#include <map>

using namespace dpt;

namespace {

DeviceWeights equal(int ranks) {
  return DeviceWeights(static_cast<std::size_t>(ranks), 1);
}

/// Runs a partition with strings as gradients: "+" shows the order of the additions.
std::map<int, std::string> run_symbolically(const WorkPartition& partition) {
  std::map<int, std::string> buffers;
  for (const WorkAction& action : partition.actions) {
    std::string& to = buffers[action.buffer];
    const std::string micro_batch =
        "[" + std::to_string(action.samples.begin) + "," + std::to_string(action.samples.end) + ")";
    switch (action.kind) {
      case WorkAction::Kind::zero:
        to = "0";
        break;
      case WorkAction::Kind::train:
        to = action.write == GradWrite::overwrite ? micro_batch : to + micro_batch;
        break;
      case WorkAction::Kind::add:
        to = "(" + to + "+" + buffers[action.other] + ")";
        break;
    }
  }
  return buffers;
}

/// Returns the whole sum over all ranks, as the collective would evaluate it.
std::string whole_sum(std::int64_t samples, const DeviceWeights& device_weights,
                      std::int64_t shards, std::int64_t micro_batch,
                      ShardBuffers in = ShardBuffers::reused) {
  std::vector<TreeNode> nodes;
  std::vector<std::string> sums;
  std::int64_t cut_into = 0;
  for (int rank = 0; rank < static_cast<int>(device_weights.size()); ++rank) {
    const WorkPartition partition =
        partition_batch(samples, device_weights, rank, shards, micro_batch, in);
    cut_into = partition.shards;
    auto buffers = run_symbolically(partition);
    for (const WorkPartition::Part& part : partition.parts) {
      nodes.push_back(part.node);
      sums.push_back(buffers[part.buffer]);
    }
  }
  for (const TreeAdd& add : tree_additions(cut_into, nodes)) {
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
        CHECK(whole_sum(samples, equal(ranks), shards, 8, ShardBuffers::one_each) == one);
      }
    }
  }
}

TEST_CASE("exact mode adds the same things in the same order for any device_weights") {
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

TEST_CASE("fast mode: one shard a rank, of its share of the samples") {
  CHECK(partition_batch(100, {9, 1}, 0, 0, 256).samples == Range{0, 90});
  CHECK(partition_batch(100, {9, 1}, 1, 0, 256).samples == Range{90, 100});
  CHECK(partition_batch(100, {9, 1}, 1, 0, 256).shards == 2);
  CHECK(whole_sum(100, {9, 1}, 0, 256) == "([0,90)+[90,100))");
  CHECK(whole_sum(100, {999, 1}, 0, 256) == "([0,100)+0)");
}

TEST_CASE("exact mode: a rank without shards has no samples and contributes nothing") {
  const WorkPartition partition = partition_batch(96, {1, 1000}, 0, 8, 16);
  CHECK(partition.samples.size() == 0);
  CHECK(partition.actions.empty());
  CHECK(partition.parts.empty());
}

TEST_CASE(
    "every sample is in exactly one micro-batch, in order, and micro-batches keep their limit") {
  for (const std::int64_t samples : {1, 7, 96, 256}) {
    for (const std::int64_t shards : {0, 8}) {
      for (int ranks = 1; ranks <= 8; ++ranks) {
        std::int64_t next = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          const WorkPartition partition = partition_batch(samples, equal(ranks), rank, shards, 20);
          CHECK((partition.samples.size() == 0 || partition.samples.begin == next));
          for (const WorkAction& action : partition.actions) {
            if (action.kind != WorkAction::Kind::train) continue;
            CHECK(action.samples.begin == next);
            CHECK(action.samples.size() >= 1);
            CHECK(action.samples.size() <= 20);
            next = action.samples.end;
          }
          CHECK((partition.samples.size() == 0 || partition.samples.end == next));
        }
        CHECK(next == samples);
      }
    }
  }
}

TEST_CASE("a rank without samples still brings a part, of zeros") {
  const WorkPartition partition = partition_batch(2, equal(4), 3, 0, 8);
  CHECK(partition.samples.size() == 0);
  REQUIRE(partition.parts.size() == 1);
  REQUIRE(partition.actions.size() == 1);
  CHECK(partition.actions[0].kind == WorkAction::Kind::zero);
}

TEST_CASE("gradient buffers grow with the tree's depth, not with the number of shards") {
  CHECK(partition_batch(64, equal(1), 0, 64, 8).buffers <= 7);
  CHECK(partition_batch(64, equal(1), 0, 0, 8).buffers == 1);
}

TEST_CASE("a shard has as many micro-batches as were asked for, if it has so many samples") {
  const auto sizes = [](std::int64_t samples, MicroBatchRule rule, std::int64_t shards = 0) {
    std::vector<std::int64_t> found;
    for (const WorkAction& action : partition_batch(samples, equal(1), 0, shards, rule).actions) {
      if (action.kind == WorkAction::Kind::train) found.push_back(action.samples.size());
    }
    return found;
  };
  using Sizes = std::vector<std::int64_t>;
  CHECK(sizes(12, {256, 3}) == Sizes{4, 4, 4});
  CHECK(sizes(10, {256, 4}) == Sizes{3, 3, 2, 2});
  CHECK(sizes(3, {256, 5}) == Sizes{1, 1, 1});
  // If a micro-batch would be too large to run at once, there are more micro-batches.
  CHECK(sizes(12, {2, 3}) == Sizes{2, 2, 2, 2, 2, 2});
  CHECK(sizes(12, {256, 2}, 2) == Sizes{3, 3, 3, 3});
}
