// Arena places for blocks that are used at different times, and the buckets of the gradient.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/graph/plan.h"

namespace dpt {

/// A block of memory that is in use from step `first` to step `last` (inclusive) of a schedule.
struct Lifetime {
  std::size_t bytes = 0;
  int first = 0, last = 0;
};

/// Returns offsets (64-byte aligned) such that blocks whose lifetimes overlap do not overlap in
/// memory. Greedy by size, deterministic. Sets `total` to the size of the arena.
std::vector<std::size_t> assign_memory(const std::vector<Lifetime>& lifetimes, std::size_t& total);

/// A range of the gradient buffer that is complete after the backward of `node` and of all later
/// nodes.
struct GradientBucket {
  int node = 0;
  std::int64_t begin = 0, end = 0;  ///< in floats
};
/// Divides the gradient buffer, including metrics, into buckets of at least `bytes` each (except
/// the last), in the order in which backward completes them: from the end of the buffer to its
/// beginning.
std::vector<GradientBucket> gradient_buckets(const Plan& plan, std::int64_t bytes);

}  // namespace dpt
