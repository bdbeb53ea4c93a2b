// The samples that an epoch draws from classes of unequal size.
#include "engine/data/sampling.h"

#include <algorithm>
#include <map>
#include <set>

#include "engine/data/split.h"
#include "tests/engine/data/labelled.h"
#include "tests/engine/data/support.h"

namespace dpt {
namespace {

using namespace data_test;

/// Returns the labels of 24 samples of class 0, 5 of class 2 and one of class 3; class 1 is empty.
std::vector<std::int32_t> uneven() {
  std::vector<std::int32_t> labels(24, 0);
  labels.insert(labels.end(), 5, 2);
  labels.push_back(3);
  return labels;
}

Split whole_split(const std::shared_ptr<const DataSource>& source) {
  Split split{source, {}};
  for (std::int64_t i = 0; i < source->size(); ++i) split.indices.push_back(i);
  return split;
}

TEST_CASE("balanced: each class as often, its samples in turns, also from epoch to epoch") {
  const auto source = std::make_shared<Labelled>(uneven());
  // 31 samples and 3 classes: the extra sample rotates among the classes.
  Split split = whole_split(source);
  split.indices.pop_back();
  split.indices.push_back(29);
  split.indices.insert(split.indices.begin(), 0);
  for (const bool shuffle : {true, false}) {
    CAPTURE(shuffle);
    const Sampling sampling(split, {7, shuffle, Sampler::balanced});
    std::map<std::int32_t, int> of_class;
    std::map<std::int64_t, int> of_sample;
    for (std::int64_t epoch = 0; epoch < 12; ++epoch) {
      const EpochOrder order = sampling.epoch(epoch);
      REQUIRE(order.indices.size() == 31);
      REQUIRE(order.keys.size() == 31);
      std::map<std::int32_t, int> now;
      for (const std::int64_t index : order.indices) {
        ++now[source->label(index)];
        ++of_sample[index];
      }
      REQUIRE(now.size() == 3);
      for (const auto& [label, count] : now) {
        CHECK(count >= 10);
        CHECK(count <= 11);
        of_class[label] += count;
      }
      // The order depends on nothing but the epoch.
      CHECK(sampling.epoch(epoch).indices == order.indices);
    }
    for (const auto& [label, count] : of_class) CHECK(count == 12 * 31 / 3);
    // Class 2: 124 draws from 5 samples. Class 0: 124 draws from 24 samples. Sample 0 is in the
    // split twice.
    for (const std::int64_t index : {24, 25, 26, 27, 28}) {
      CHECK(of_sample[index] >= 24);
      CHECK(of_sample[index] <= 25);
    }
    CHECK(of_sample[29] == 124);
    for (std::int64_t index = 1; index < 24; ++index) {
      CHECK(of_sample[index] >= 4);
      CHECK(of_sample[index] <= 5);
    }
  }
}

TEST_CASE("balanced: a sample that comes again in an epoch has another key each time") {
  const auto source = std::make_shared<Labelled>(uneven());
  const Split split = whole_split(source);
  const Sampling sampling(split, {7, true, Sampler::balanced});
  const EpochOrder order = sampling.epoch(3);
  std::set<std::int64_t> keys;
  std::map<std::int64_t, std::int64_t> times;
  for (std::size_t i = 0; i < order.keys.size(); ++i) {
    CHECK(order.keys[i] % source->size() == order.indices[i]);
    keys.insert(order.keys[i]);
    ++times[order.indices[i]];
  }
  CHECK(keys.size() == order.keys.size());
  CHECK(times[29] == 10);
  CHECK(keys.contains(29 + 9 * 30));
  CHECK_FALSE(keys.contains(29 + 10 * 30));
  CHECK(sampling.epoch(4).indices != order.indices);
  CHECK(Sampling(split, {8, true, Sampler::balanced}).epoch(3).indices != order.indices);
}

TEST_CASE("balanced: the order never changes between versions") {
  // A resumed run must see the samples that the first run would have seen.
  const auto source = std::make_shared<Labelled>(std::vector<std::int32_t>{0, 0, 0, 0, 1, 2});
  const Split split = whole_split(source);
  const EpochOrder order = Sampling(split, {1, true, Sampler::balanced}).epoch(5);
  CHECK((order.indices == std::vector<std::int64_t>{0, 5, 4, 5, 1, 4}));
  CHECK((order.keys == std::vector<std::int64_t>{0, 11, 4, 5, 1, 10}));
}

TEST_CASE("uniform: each sample once, with its index as key") {
  const auto source = std::make_shared<Labelled>(uneven());
  const Split split{source, {3, 5, 8, 13}};
  const EpochOrder order = Sampling(split, {7, true, Sampler::uniform}).epoch(2);
  CHECK(order.draw_keys() == order.indices);
  std::vector<std::int64_t> sorted = order.indices;
  std::sort(sorted.begin(), sorted.end());
  CHECK(sorted == split.indices);
}

TEST_CASE("balanced needs class labels") {
  const auto source =
      std::make_shared<Labelled>(uneven(), std::vector<std::int64_t>{}, TargetKind::multi_hot);
  const Split split = whole_split(source);
  CHECK(error_of(
            [&] {
              Sampling(split, {1, true, Sampler::balanced});
            },
            ErrorKind::usage) ==
        "data.sampler: balanced needs class labels, which this data set does not have: write "
        "uniform");
}

}  // namespace
}  // namespace dpt
