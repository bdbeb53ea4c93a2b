// The AVX2 loops of flat.h. Each handles a whole number of vectors and returns how many
// elements it did; flat.cpp does the rest. REQUIRES: CpuFeatures::avx2.
#pragma once

#include <cstdint>

#include "kernels/common/optimizer_math.h"

namespace dpt::flat_avx2 {

std::int64_t add(float* to, const float* a, const float* b, std::int64_t n);
/// Adds the squares of the first multiple of 16 elements to sums[i % 16].
std::int64_t add_squares(const float* g, std::int64_t n, double sums[16]);
// The optimizers set `finite` to false when a value they wrote is not finite.
std::int64_t sgd(const SgdStep& step, float* params, const float* grads, std::int64_t n,
                 bool& finite);
std::int64_t sgd_momentum(const SgdStep& step, bool first, float* params, const float* grads,
                          float* buffer, std::int64_t n, bool& finite);
/// `max_square` is null without amsgrad.
std::int64_t adam(const AdamStep& step, float* params, const float* grads, float* mean,
                  float* square, float* max_square, std::int64_t n, bool& finite);

}  // namespace dpt::flat_avx2
