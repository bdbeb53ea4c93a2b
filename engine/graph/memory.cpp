// assign_memory finds offsets in one arena for blocks with known lifetimes. gradient_buckets
// follows the order in which gradients are complete.
#include "engine/graph/memory.h"

#include <algorithm>
#include <numeric>

#include "engine/graph/param_places.h"
#include "kernels/base/align.h"

namespace dpt {
std::vector<std::size_t> assign_memory(const std::vector<Lifetime>& lifetimes, std::size_t& total) {
  // Greedy by size: place the largest block first, each at the lowest place that is free during its
  // whole lifetime. Ties are broken by time and then by index, so the result is deterministic.
  std::vector<std::size_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    if (lifetimes[a].bytes != lifetimes[b].bytes) return lifetimes[a].bytes > lifetimes[b].bytes;
    return lifetimes[a].first < lifetimes[b].first;
  });

  std::vector<std::size_t> offsets(lifetimes.size(), 0);
  std::vector<std::size_t> placed;  // indices, by ascending offset
  total = 0;
  for (const std::size_t index : order) {
    const Lifetime& life = lifetimes[index];
    const std::size_t bytes = aligned(life.bytes);
    if (bytes == 0) continue;
    std::size_t at = 0;
    for (const std::size_t other : placed) {
      const Lifetime& taken = lifetimes[other];
      if (taken.last < life.first || life.last < taken.first) continue;
      if (offsets[other] >= at + bytes) break;  // the gap before this one is wide enough
      at = std::max(at, offsets[other] + aligned(taken.bytes));
    }
    offsets[index] = at;
    total = std::max(total, at + bytes);
    const auto later = std::upper_bound(
        placed.begin(), placed.end(), at,
        [&](std::size_t offset, std::size_t other) { return offset < offsets[other]; });
    placed.insert(later, index);
  }
  return offsets;
}

std::vector<GradientBucket> gradient_buckets(const Plan& plan, std::int64_t bytes) {
  const std::int64_t floats = bytes / static_cast<std::int64_t>(sizeof(float));
  std::vector<GradientBucket> buckets;
  const std::int64_t first = gradient_begin(plan);
  std::int64_t end = plan.grad_floats(), begin = end;
  // Backward does not run the first nodes if neither they nor the nodes before them have trained
  // parameters.
  int running = static_cast<int>(plan.nodes.size()) - 1;
  for (int node = static_cast<int>(plan.nodes.size()) - 1; node >= 0; --node) {
    const int output = plan.nodes[node].output;
    if (plan.values[output].needs_gradient) running = node;
    for (const int index : plan.nodes[node].params) {
      // The first layer that shares a parameter is the last to add to its gradient.
      const Param& param = plan.params[index];
      if (param.node == node) begin = std::min(begin, param.offset);
    }
    begin = std::max(begin, first);
    if (begin == end || (end - begin < floats && begin > first)) continue;
    buckets.push_back({running, begin, end});
    end = begin;
  }
  return buckets;
}

}  // namespace dpt
