// Flat fp32 kernels: the loops for any processor, which also finish what the wide loops leave.
#include "kernels/cpu/flat.h"

#include <algorithm>
#include <cstring>

#include "kernels/common/optimizer_math.h"
#include "kernels/cpu/check.h"
#include "kernels/cpu/features.h"
#include "kernels/cpu/flat_avx2.h"

namespace dpt {
namespace {

// Bytes that one block of all parts takes together: they stay in the second-level cache.
constexpr std::int64_t kBlockBytes = 256 * 1024;
constexpr std::int64_t kSmallestBlock = 1024;

bool wide() {
  static const bool avx2 = CpuFeatures::detect().avx2;
  return avx2;
}

/// 1 for NaN and infinities. An integer, so that a loop over it has no branch.
unsigned not_finite(float x) {
  return is_finite(x) ? 0U : 1U;
}

}  // namespace

void cpu_add(float* to, const float* a, const float* b, std::int64_t n) {
  std::int64_t i = wide() ? flat_avx2::add(to, a, b, n) : 0;
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
      float* left = host(parts[static_cast<std::size_t>(add.left)]) + begin;
      cpu_add(left, left, host(parts[static_cast<std::size_t>(add.right)]) + begin, count);
    }
    for (const DevPtr& out : outs) {
      if (out == parts[0]) continue;
      std::memcpy(host(out) + begin, host(parts[0]) + begin,
                  static_cast<std::size_t>(count) * sizeof(float));
    }
  }
}

void cpu_to_bf16(Bf16* to, const float* from, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = to_bf16(from[i]);
}

void cpu_grad_norm(const float* g, std::int64_t n, StepScalars* s) {
  double sums[16] = {};
  std::int64_t i = wide() ? flat_avx2::add_squares(g, n, sums) : 0;
  for (; i < n; ++i) sums[i % 16] += static_cast<double>(g[i]) * static_cast<double>(g[i]);
  for (int half = 8; half > 0; half /= 2) {
    for (int j = 0; j < half; ++j) sums[j] += sums[j + half];
  }
  set_norm_and_clip(*s, sums[0]);
}

bool cpu_optimizer_step(const OptimizerDesc& desc, float* params, const float* grads, float* s1,
                        float* s2, float* s3, const StepScalars& now, std::int64_t n) {
  std::int64_t i = 0;
  bool finite = true;
  unsigned bad = 0;
  if (desc.kind != OptimizerKind::sgd) {
    const AdamStep step = adam_step(desc, now);
    float* largest = desc.amsgrad ? s3 : nullptr;
    if (wide()) i = flat_avx2::adam(step, params, grads, s1, s2, largest, n, finite);
    for (; i < n; ++i) {
      adam_update(step, params[i], grads[i], s1[i], s2[i], largest ? largest + i : nullptr);
      // The largest second moment is one that `s2` had, or NaN, and then so is the parameter.
      bad |= not_finite(params[i]) | not_finite(s1[i]) | not_finite(s2[i]);
    }
    return finite && bad == 0;
  }
  const SgdStep step = sgd_step(desc, now);
  if (desc.momentum == 0) {
    if (wide()) i = flat_avx2::sgd(step, params, grads, n, finite);
    for (; i < n; ++i) {
      sgd_update(step, params[i], grads[i]);
      bad |= not_finite(params[i]);
    }
    return finite && bad == 0;
  }
  const bool first = now.first_step != 0;
  if (wide()) i = flat_avx2::sgd_momentum(step, first, params, grads, s1, n, finite);
  for (; i < n; ++i) {
    sgd_momentum_update(step, first, params[i], grads[i], s1[i]);
    bad |= not_finite(params[i]) | not_finite(s1[i]);
  }
  return finite && bad == 0;
}

}  // namespace dpt
