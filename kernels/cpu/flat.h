// Kernels over flat fp32 buffers (sum, gradient norm). They run in the CPU backend's thread, and
// their results have the same bits on every instruction set.
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "kernels/common/bf16.h"

namespace dpt {

struct Bf16Loops;

/// Sets to[i] = a[i] + b[i] for i < n. The three arrays may be the same memory.
void cpu_add(float* to, const float* a, const float* b, std::int64_t n);

/// Implements Backend::tree_sum, in blocks that stay in the cache from the first addition to the
/// last copy.
void cpu_tree_sum(std::span<const DevPtr> parts, std::span<const TreeAdd> additions,
                  std::span<const DevPtr> outs, std::int64_t n);

/// Sets to[i] = from[i] rounded, for i < n.
void cpu_to_bf16(Bf16* to, const float* from, std::int64_t n);
/// Returns the loops over bf16 numbers for this machine, or null if it has none.
const Bf16Loops* bf16_loops();

/// Sets `grad_norm`, `clip` and `finite` of `s` from the n gradients (set_norm_and_clip). The sum
/// is in double; element i goes to partial sum i % 16.
void cpu_grad_norm(const float* g, std::int64_t n, StepScalars* s);

/// Multiplies the values by `factor`.
void cpu_scale(float* values, float factor, std::int64_t n);
/// Sets values[i] = clipped(values[i], limit), for i < n.
void cpu_clip_values(float* values, float limit, std::int64_t n);

}  // namespace dpt
