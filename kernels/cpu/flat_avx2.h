// The AVX2 loops of flat.h. Each handles a whole number of vectors and returns how many
// elements it did; flat.cpp does the rest. REQUIRES: CpuFeatures::avx2.
#pragma once

#include <cstdint>

namespace dpt::flat_avx2 {

std::int64_t add(float* to, const float* a, const float* b, std::int64_t n);
/// Adds the squares of the first multiple of 16 elements to sums[i % 16].
std::int64_t add_squares(const float* g, std::int64_t n, double sums[16]);

}  // namespace dpt::flat_avx2
