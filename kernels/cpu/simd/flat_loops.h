// Vectorised loops of flat.h. Each processes whole vectors only and returns the number of elements
// processed; flat.cpp handles the rest.
#pragma once

#include <cstdint>

namespace dpt {

/// The loops compiled for one instruction set.
struct FlatLoops {
  std::int64_t (*add)(float* to, const float* a, const float* b, std::int64_t n);
  /// Adds the square of element i to sums[i % 16], for as many elements as fill groups of 16.
  std::int64_t (*add_squares)(const float* g, std::int64_t n, double sums[16]);
};
extern const FlatLoops kFlatLoopsAvx2;

}  // namespace dpt
