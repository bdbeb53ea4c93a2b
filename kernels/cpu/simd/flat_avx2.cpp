// AVX2 loops over flat buffers. This file must not instantiate templates for plain floats: the
// linker could use a copy with AVX2 instructions on all processors.
#include "kernels/cpu/simd/flat_loops.h"
#include "kernels/cpu/simd/floats_avx2.h"

namespace dpt {
namespace {

std::int64_t add(float* to, const float* a, const float* b, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8) store(to + i, load(a + i) + load(b + i));
  return i;
}

std::int64_t add_squares(const float* g, std::int64_t n, double sums[16]) {
  __m256d sum[4];
  for (int j = 0; j < 4; ++j) sum[j] = _mm256_loadu_pd(sums + 4 * j);
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (int j = 0; j < 4; ++j) {
      // The square of a float is exact in double, so a fused multiply-add gives the same bits as
      // separate operations.
      const __m256d x = _mm256_cvtps_pd(_mm_loadu_ps(g + i + 4 * j));
      sum[j] = _mm256_fmadd_pd(x, x, sum[j]);
    }
  }
  for (int j = 0; j < 4; ++j) _mm256_storeu_pd(sums + 4 * j, sum[j]);
  return i;
}

}  // namespace

constexpr FlatLoops kFlatLoopsAvx2{add, add_squares};

}  // namespace dpt
