// Flat fp32 kernels: the loops for any processor. They also handle the elements that the vectorised
// loops leave over.
#include "kernels/cpu/flat.h"

#include <algorithm>
#include <cstring>

#include "kernels/common/update_outcome.h"
#include "kernels/cpu/check.h"
#include "kernels/cpu/simd/bf16_loops.h"
#include "kernels/cpu/simd/flat_loops.h"
#include "kernels/cpu/simd/kernel_tables.h"

namespace dpt {
namespace {

// Size of one block of all parts together, which should stay in the second-level cache.
constexpr std::int64_t kBlockBytes = 256 * 1024;
constexpr std::int64_t kSmallestBlock = 1024;

/// Returns the vectorised loops, or null if there are none for the processor.
const FlatLoops* wide() {
  static const FlatLoops* const loops = kernel_tables(CpuFeatures::detect()).flat;
  return loops;
}

}  // namespace

void cpu_add(float* to, const float* a, const float* b, std::int64_t n) {
  std::int64_t i = wide() ? wide()->add(to, a, b, n) : 0;
  for (; i < n; ++i) to[i] = a[i] + b[i];
}

void cpu_tree_sum(std::span<const DevPtr> parts, std::span<const TreeAdd> additions,
                  std::span<const DevPtr> outs, std::int64_t n) {
  const std::int64_t fitting =
      kBlockBytes / static_cast<std::int64_t>(sizeof(float) * parts.size());
  const std::int64_t block = std::max(kSmallestBlock, fitting / kSmallestBlock * kSmallestBlock);
  for (std::int64_t begin = 0; begin < n; begin += block) {
    const std::int64_t count = std::min(block, n - begin);
    for (const TreeAdd& add : additions) {
      float* left = host(parts[add.left]) + begin;
      cpu_add(left, left, host(parts[add.right]) + begin, count);
    }
    for (const DevPtr& out : outs) {
      if (out == parts[0]) continue;
      std::memcpy(host(out) + begin, host(parts[0]) + begin,
                  static_cast<std::size_t>(count) * sizeof(float));
    }
  }
}

const Bf16Loops* bf16_loops() {
  static const Bf16Loops* const loops = kernel_tables(CpuFeatures::detect()).bf16;
  return loops;
}

void cpu_to_bf16(Bf16* to, const float* from, std::int64_t n) {
  if (const Bf16Loops* wide = bf16_loops()) return wide->round(to, from, n);
  for (std::int64_t i = 0; i < n; ++i) to[i] = to_bf16(from[i]);
}

void cpu_grad_norm(const float* g, std::int64_t n, StepScalars* s) {
  double sums[16] = {};
  std::int64_t i = wide() ? wide()->add_squares(g, n, sums) : 0;
  for (; i < n; ++i) sums[i % 16] += static_cast<double>(g[i]) * static_cast<double>(g[i]);
  for (int half = 8; half > 0; half /= 2) {
    for (int j = 0; j < half; ++j) sums[j] += sums[j + half];
  }
  set_norm_and_clip(*s, sums[0]);
}

void cpu_scale(float* values, float factor, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) values[i] *= factor;
}

void cpu_clip_values(float* values, float limit, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) values[i] = clipped(values[i], limit);
}

}  // namespace dpt
