// Places in one arena for what is needed at different times, and the buckets of the gradient.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/graph/plan.h"

namespace dpt {

/// A stretch of memory that is in use from step `first` to step `last` (inclusive) of a schedule.
struct Lifetime {
  std::size_t bytes = 0;
  int first = 0, last = 0;
};

/// Offsets (64-byte aligned) such that lifetimes that overlap in time do not overlap in memory;
/// greedy by size, deterministic. `total` gets the arena's size.
std::vector<std::size_t> assign_memory(const std::vector<Lifetime>& lifetimes, std::size_t& total);

/// A stretch of the gradient buffer that is complete once the backward of `node` is done, and of
/// all nodes after it.
struct GradientBucket {
  int node = 0;
  std::int64_t begin = 0, end = 0;  ///< floats
};
/// Cuts the gradient buffer, metrics included, into buckets of at least `bytes` each (but the
/// last), in the order in which backward completes them: from the end of the buffer to its
/// beginning.
std::vector<GradientBucket> gradient_buckets(const Plan& plan, std::int64_t bytes);

}  // namespace dpt
