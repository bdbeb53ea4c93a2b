// assign_memory: two blocks that are alive at the same time never overlap.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <random>

#include "engine/graph/make_plan.h"
#include "engine/graph/memory.h"
#include "engine/graph/plan.h"
#include "tests/support/model.h"

namespace dpt::testing {
namespace {

bool meet_in_time(const Lifetime& a, const Lifetime& b) {
  return a.first <= b.last && b.first <= a.last;
}

TEST_CASE("random lifetimes never overlap in memory, and the arena is no larger than needed") {
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    const std::size_t count = random() % 24;
    const int steps = 1 + static_cast<int>(random() % 30);
    std::vector<Lifetime> lifetimes;
    for (std::size_t i = 0; i < count; ++i) {
      const int a = static_cast<int>(random() % steps), b = static_cast<int>(random() % steps);
      // The sizes include zero, equal and odd ones.
      const std::size_t bytes = random() % 5 == 0 ? 0 : random() % (random() % 2 ? 300 : 5000);
      lifetimes.push_back({bytes, std::min(a, b), std::max(a, b)});
    }
    std::size_t total = 12345;
    const std::vector<std::size_t> offsets = assign_memory(lifetimes, total);
    REQUIRE(offsets.size() == count);
    std::size_t sum = 0, end = 0;
    for (std::size_t i = 0; i < count; ++i) {
      CHECK(offsets[i] % 64 == 0);
      CHECK(offsets[i] + lifetimes[i].bytes <= total);
      sum += (lifetimes[i].bytes + 63) / 64 * 64;
      end = std::max(end, offsets[i] + (lifetimes[i].bytes + 63) / 64 * 64);
      for (std::size_t j = 0; j < i; ++j) {
        if (lifetimes[i].bytes == 0 || lifetimes[j].bytes == 0) continue;
        if (!meet_in_time(lifetimes[i], lifetimes[j])) continue;
        const bool apart = offsets[i] + lifetimes[i].bytes <= offsets[j] ||
                           offsets[j] + lifetimes[j].bytes <= offsets[i];
        CHECK(apart);
      }
    }
    CHECK(total == end);
    CHECK(total <= sum);
    std::size_t again = 0;
    CHECK(assign_memory(lifetimes, again) == offsets);
    CHECK(again == total);
  }
}

TEST_CASE("blocks that never meet share the same place, and gaps are used") {
  std::size_t total = 0;
  CHECK(assign_memory({{1000, 0, 1}, {1000, 2, 3}, {1000, 4, 4}}, total) ==
        std::vector<std::size_t>{0, 0, 0});
  CHECK(total == 1024);
  // The first and the third block are alive together. The second one fits below the third once the
  // first is dead.
  CHECK(assign_memory({{128, 0, 1}, {64, 2, 3}, {100, 0, 3}}, total) ==
        std::vector<std::size_t>{0, 0, 128});
  CHECK(total == 256);
  // The third block fills a gap that is just wide enough. Of equal blocks, the one that begins
  // first has the lower address.
  CHECK(assign_memory({{128, 0, 1}, {128, 0, 3}, {128, 2, 3}}, total) ==
        std::vector<std::size_t>{0, 128, 0});
  CHECK(total == 256);
  CHECK(assign_memory({{64, 1, 2}, {64, 0, 2}}, total) == std::vector<std::size_t>{64, 0});
  CHECK(total == 128);
  CHECK(assign_memory({}, total).empty());
  CHECK(total == 0);
}

TEST_CASE("gradients are cut into buckets of the size that is asked for, from their end") {
  // Weight and bias have 32 and 4 floats in a, and 8 and 2 in b. Each is padded to a multiple of
  // 16. The metrics take 32 more.
  const Plan plan =
      make_plan(ModelSpecBuilder({8, 1, 1}).add("Flatten").linear("a", 4).linear("b", 2).spec());
  REQUIRE(plan.grad_floats() == 112);
  using Cuts = std::vector<std::array<std::int64_t, 3>>;
  const auto cuts = [&](std::int64_t bytes) {
    Cuts all;
    for (const GradientBucket& bucket : gradient_buckets(plan, bytes)) {
      all.push_back({bucket.node, bucket.begin, bucket.end});
    }
    return all;
  };
  CHECK(cuts(4) == Cuts{{2, 48, 112}, {1, 0, 48}});
  CHECK(cuts(64 * 4) == Cuts{{2, 48, 112}, {1, 0, 48}});
  CHECK(cuts(65 * 4) == Cuts{{1, 0, 112}});
  CHECK(cuts(1 << 20) == Cuts{{1, 0, 112}});
}

TEST_CASE("buckets hold the gradients of a first layer that has parameters") {
  const Plan plan =
      make_plan(ModelSpecBuilder({1, 4, 4})
                    .add("Conv2d", {{"out_channels", integer(2)}, {"kernel_size", square(3)}}, "c")
                    .add("Flatten")
                    .linear("a", 2)
                    .spec());
  for (const std::int64_t bytes : {4, 1 << 20}) {
    std::int64_t end = plan.grad_floats();
    for (const GradientBucket& bucket : gradient_buckets(plan, bytes)) {
      CHECK(bucket.end == end);
      end = bucket.begin;
    }
    CHECK(end == 0);
  }
}

}  // namespace
}  // namespace dpt::testing
