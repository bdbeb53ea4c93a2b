// Alignment of blocks of host memory and of blocks within an arena.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/base/divide.h"

namespace dpt {

/// Alignment in bytes: a cache line, and the widest vector register.
inline constexpr std::size_t kAlignment = 64;

/// Alignment in floats. Parameters begin at multiples of it in the flat buffers.
inline constexpr std::int64_t kAlignFloats = kAlignment / sizeof(float);

/// Returns `bytes` rounded up to a multiple of kAlignment.
constexpr std::size_t aligned(std::size_t bytes) {
  return align_up(bytes, kAlignment);
}

}  // namespace dpt
