// bfloat16 as in CUDA: the upper half of a float, converted with round to nearest even; a NaN stays
// a NaN. In CUDA, bf16 arithmetic rounds after every operation, and mixing bf16 with floats is
// ambiguous. To exclude any difference in meaning, this header deletes arithmetic on bf16: convert
// to float, compute, convert back.
#pragma once

#include "cuda_runtime.h"

struct __align__(2) __nv_bfloat16_raw {
  unsigned short x;
};

struct __align__(2) __nv_bfloat16 {
  __nv_bfloat16() = default;
  __nv_bfloat16(float value) : bits_(rounded(value)) {}
  __nv_bfloat16(__nv_bfloat16_raw raw) : bits_(raw.x) {}
  operator float() const {
    return __uint_as_float(static_cast<unsigned>(bits_) << 16);
  }
  operator __nv_bfloat16_raw() const {
    return {bits_};
  }

 private:
  static unsigned short rounded(float value) {
    const unsigned bits = __float_as_uint(value);
    if ((bits & 0x7fffffffU) > 0x7f800000U) return 0x7fff;  // CUDA's canonical NaN.
    return static_cast<unsigned short>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
  }
  unsigned short bits_;
};
static_assert(sizeof(__nv_bfloat16) == 2 && std::is_trivially_copyable_v<__nv_bfloat16>);

struct __align__(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};

using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;

__nv_bfloat16 operator+(__nv_bfloat16 a, __nv_bfloat16 b) = delete;
__nv_bfloat16 operator-(__nv_bfloat16 a, __nv_bfloat16 b) = delete;
__nv_bfloat16 operator*(__nv_bfloat16 a, __nv_bfloat16 b) = delete;
__nv_bfloat16 operator/(__nv_bfloat16 a, __nv_bfloat16 b) = delete;

template <>
inline constexpr bool emulation::detail::kShuffles<__nv_bfloat16> = true;
template <>
inline constexpr bool emulation::detail::kShuffles<__nv_bfloat162> = true;

inline __nv_bfloat16 __float2bfloat16(float a) {
  return a;
}
inline __nv_bfloat16 __float2bfloat16_rn(float a) {
  return a;
}
inline __nv_bfloat16 __double2bfloat16(double a) {
  // Rounds to a float first, by round to odd, so that only the second rounding affects the result.
  float near = static_cast<float>(a);
  if (static_cast<double>(near) != a && std::isfinite(near)) {
    if (std::fabs(static_cast<double>(near)) > std::fabs(a)) near = std::nextafter(near, 0.0F);
    near = __uint_as_float(__float_as_uint(near) | 1U);
  }
  return near;
}
inline float __bfloat162float(__nv_bfloat16 a) {
  return a;
}
inline __nv_bfloat162 __float2bfloat162_rn(float a) {
  return {a, a};
}
inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b) {
  return {a, b};
}
inline __nv_bfloat162 __float22bfloat162_rn(float2 a) {
  return {a.x, a.y};
}
inline float2 __bfloat1622float2(__nv_bfloat162 a) {
  return {a.x, a.y};
}
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) {
  return {a, b};
}
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 a) {
  return {a, a};
}
inline __nv_bfloat162 make_bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) {
  return {a, b};
}
inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 a) {
  return a.x;
}
inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 a) {
  return a.y;
}
inline float __low2float(__nv_bfloat162 a) {
  return a.x;
}
inline float __high2float(__nv_bfloat162 a) {
  return a.y;
}
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 a) {
  return static_cast<__nv_bfloat16_raw>(a).x;
}
inline short __bfloat16_as_short(__nv_bfloat16 a) {
  return static_cast<short>(__bfloat16_as_ushort(a));
}
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short a) {
  return __nv_bfloat16_raw{a};
}
inline __nv_bfloat16 __short_as_bfloat16(short a) {
  return __nv_bfloat16_raw{static_cast<unsigned short>(a)};
}
