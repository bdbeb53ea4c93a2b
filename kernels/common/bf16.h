// bfloat16, the upper half of an fp32 number. Written once, so that all backends round alike.
#pragma once

#include <cstdint>

#include "kernels/base/host_device.h"

namespace dpt {

struct Bf16 {
  std::uint16_t bits = 0;
};
static_assert(sizeof(Bf16) == 2);

/// Rounds to nearest, ties to even; NaN stays NaN.
DPT_HOST_DEVICE inline Bf16 to_bf16(float value) {
  const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, value);
  Bf16 result;
  if (value != value) {
    result.bits = static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  } else {
    result.bits = static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
  }
  return result;
}

DPT_HOST_DEVICE inline float to_float(Bf16 value) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(value.bits) << 16);
}
DPT_HOST_DEVICE inline float to_float(float value) {
  return value;
}

/// Stores a float in the type of `to`.
DPT_HOST_DEVICE inline void store(Bf16& to, float value) {
  to = to_bf16(value);
}
DPT_HOST_DEVICE inline void store(float& to, float value) {
  to = value;
}

}  // namespace dpt
