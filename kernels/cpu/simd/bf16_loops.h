// Vectorised loops over bf16 numbers. On processors without AVX-512, which do not train in bf16,
// the callers use scalar loops.
#pragma once

#include <cstdint>

#include "kernels/common/bf16.h"

namespace dpt {

/// The loops compiled for one instruction set.
struct Bf16Loops {
  /// Sets `to` to the rounded values of `from`.
  void (*round)(Bf16* to, const float* from, std::int64_t n);
  /// Sets y to the sum of the arrays x[0] to x[inputs - 1], after ReLU if `relu`, rounded once. y
  /// may be one of these arrays.
  void (*sum)(Bf16* y, const Bf16* const* x, int inputs, bool relu, std::int64_t n);
  /// Sets y to x after ReLU; y may be x.
  void (*relu)(Bf16* y, const Bf16* x, std::int64_t n);
  /// Sets dx to dy where y passed ReLU, else to 0; dx may be dy.
  void (*mask)(Bf16* dx, const Bf16* dy, const Bf16* y, std::int64_t n);
};
extern const Bf16Loops kBf16LoopsAvx512;

}  // namespace dpt
