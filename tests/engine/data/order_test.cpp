// Splits and the order of an epoch.
#include <algorithm>
#include <numeric>
#include <set>

#include "engine/data/data_sets.h"
#include "engine/data/loader.h"
#include "engine/data/split.h"
#include "engine/data/splits.h"
#include "tests/engine/data/support.h"

namespace dpt {
namespace {

using namespace data_test;
using Order = std::vector<std::int64_t>;

Order identity(std::int64_t n) {
  Order order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

TEST_CASE("an epoch's order is a permutation, a pure function of seed and epoch") {
  for (const std::int64_t n : {0, 1, 2, 3, 7, 64, 1437, 60001}) {
    Order order = epoch_order(n, 1, 3, true);
    CHECK(order == epoch_order(n, 1, 3, true));
    if (n > 10) {
      CHECK(order != epoch_order(n, 1, 4, true));
      CHECK(order != epoch_order(n, 2, 3, true));
      CHECK(order != epoch_order(n, (std::uint64_t{1} << 32) + 1, 3, true));
      CHECK(order != identity(n));
    }
    std::sort(order.begin(), order.end());
    CHECK(order == identity(n));
    CHECK(epoch_order(n, 1, 3, false) == identity(n));
  }
}

TEST_CASE("the order of an epoch never changes between versions") {
  // A resumed run must see the samples that the first run would have seen.
  CHECK(epoch_order(10, 1, 0, true) == Order{9, 3, 1, 2, 6, 8, 0, 5, 4, 7});
  CHECK(epoch_order(9, 7, 5, true) == Order{8, 0, 1, 5, 4, 2, 6, 7, 3});
}

TEST_CASE("all orders are equally likely") {
  // 24 orders of 4 samples over 12,000 epochs: 500 each; five standard deviations are 109.
  std::vector<int> counts(256);
  for (std::int64_t epoch = 0; epoch < 12000; ++epoch) {
    std::size_t key = 0;
    for (const std::int64_t i : epoch_order(4, 1, epoch, true)) {
      key = key * 4 + static_cast<std::size_t>(i);
    }
    ++counts[key];
  }
  int orders = 0;
  for (const int count : counts) {
    if (count == 0) continue;
    ++orders;
    CHECK(std::abs(count - 500) < 109);
  }
  CHECK(orders == 24);
}

TEST_CASE("every sample comes first equally often") {
  std::vector<int> counts(100);
  for (std::int64_t epoch = 0; epoch < 20000; ++epoch) {
    ++counts[epoch_order(100, 3, epoch, true)[0]];
  }
  const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
  CHECK(*least > 200 - 71);
  CHECK(*most < 200 + 71);
}

DataSets synthetic(std::int64_t size, std::int64_t test_size) {
  return open("synthetic", {{"size", size}, {"test_size", test_size}}, {{4, 4, 1}, 10});
}

TEST_CASE("splits part the training samples and leave the test set alone") {
  const DataSets sets = synthetic(1000, 50);
  const Splits splits = make_splits(sets, {100}, 1);
  CHECK(splits.train.size() == 900);
  CHECK(splits.val.size() == 100);
  CHECK(splits.test.size() == 50);
  CHECK(splits.test.indices == identity(50));
  CHECK(splits.train.source == sets.train);
  CHECK(splits.val.source == sets.train);
  CHECK(splits.test.source == sets.test);
  CHECK(std::is_sorted(splits.train.indices.begin(), splits.train.indices.end()));
  CHECK(std::is_sorted(splits.val.indices.begin(), splits.val.indices.end()));
  std::set<std::int64_t> all(splits.train.indices.begin(), splits.train.indices.end());
  all.insert(splits.val.indices.begin(), splits.val.indices.end());
  CHECK(all.size() == 1000);
  // Samples come from the whole range, and another seed draws others.
  CHECK(splits.val.indices.front() < 100);
  CHECK(splits.val.indices.back() > 900);
  CHECK(make_splits(sets, {100}, 1).val.indices == splits.val.indices);
  CHECK(make_splits(sets, {100}, 2).val.indices != splits.val.indices);
}

TEST_CASE("splits without validation or test") {
  const Splits splits = make_splits(synthetic(10, 0), {}, 1);
  CHECK(splits.train.indices == identity(10));
  CHECK(splits.val.size() == 0);
  CHECK(splits.test.size() == 0);
}

TEST_CASE("a split that leaves nothing is refused") {
  for (const std::int64_t val_split : {10, 11, -1}) {
    CHECK(error_of([&] { make_splits(synthetic(10, 0), {val_split}, 1); }, ErrorKind::usage) ==
          fmt::format("data.val_split: {} of the 10 training samples would be held out, which "
                      "leaves nothing to train on: choose a number from 0 to 9",
                      val_split));
  }
}

}  // namespace
}  // namespace dpt
