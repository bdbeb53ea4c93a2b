// Functions of device code: atomics on integers, intrinsics, and mathematical functions that C++
// lacks. The approximate intrinsics (__expf, ...) are exact here: tests must leave room for their
// error on a device.
#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "emulation/execution.h"

namespace emulation::detail {

template <class To, class From>
To bits_to(From value) {
  static_assert(sizeof(To) == sizeof(From));
  To result;
  std::memcpy(&result, &value, sizeof(To));
  return result;
}
/// Integer types that the device supports in atomics.
template <class T>
concept AtomicInteger =
    std::is_same_v<T, int> || std::is_same_v<T, unsigned> || std::is_same_v<T, unsigned long long>;

/// Performs one atomic read-modify-write, because another host thread may use the same pinned
/// memory.
template <class T, class Change>
T atomically(T* address, Change change) {
  T old = __atomic_load_n(address, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(address, &old, change(old), false, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED)) {
  }
  return old;
}

}  // namespace emulation::detail

// ---- Atomics -----------------------------------------------------------------------------------
template <emulation::detail::AtomicInteger T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
}
template <emulation::detail::AtomicInteger T>
T atomicExch(T* address, std::type_identity_t<T> value) {
  return __atomic_exchange_n(address, value, __ATOMIC_RELAXED);
}
template <emulation::detail::AtomicInteger T>
T atomicCAS(T* address, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  return emulation::detail::atomically(address,
                                       [=](T old) { return old == expected ? value : old; });
}
template <emulation::detail::AtomicInteger T>
T atomicMax(T* address, std::type_identity_t<T> value) {
  return emulation::detail::atomically(address, [=](T old) { return old > value ? old : value; });
}
template <emulation::detail::AtomicInteger T>
T atomicMin(T* address, std::type_identity_t<T> value) {
  return emulation::detail::atomically(address, [=](T old) { return old < value ? old : value; });
}
template <emulation::detail::AtomicInteger T>
T atomicOr(T* address, std::type_identity_t<T> value) {
  return __atomic_fetch_or(address, value, __ATOMIC_RELAXED);
}
template <emulation::detail::AtomicInteger T>
T atomicAnd(T* address, std::type_identity_t<T> value) {
  return __atomic_fetch_and(address, value, __ATOMIC_RELAXED);
}
template <emulation::detail::AtomicInteger T>
T atomicXor(T* address, std::type_identity_t<T> value) {
  return __atomic_fetch_xor(address, value, __ATOMIC_RELAXED);
}
inline int atomicSub(int* address, int value) {
  return __atomic_fetch_sub(address, value, __ATOMIC_RELAXED);
}
inline unsigned atomicSub(unsigned* address, unsigned value) {
  return __atomic_fetch_sub(address, value, __ATOMIC_RELAXED);
}
inline unsigned atomicInc(unsigned* address, unsigned limit) {
  return emulation::detail::atomically(address,
                                       [=](unsigned old) { return old >= limit ? 0U : old + 1; });
}
inline unsigned atomicDec(unsigned* address, unsigned limit) {
  return emulation::detail::atomically(
      address, [=](unsigned old) { return old == 0 || old > limit ? limit : old - 1; });
}

// ---- Order of memory accesses: threads never run at the same time here -------------------------
inline void __threadfence() {
#ifdef __SANITIZE_THREAD__
  emulation::detail::order_fence();
#endif
}
inline void __threadfence_system() {
  __threadfence();
}
inline void __threadfence_block() {}
inline void __nanosleep(unsigned) {}
[[noreturn]] inline void __trap(
    const std::source_location& where = std::source_location::current()) {
  emulation::fault("__trap()", where);
}
inline long long clock64() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

// ---- Loads and stores with cache hints ---------------------------------------------------------
template <class T>
T __ldg(const T* address) {
  return *address;
}
template <class T>
T __ldca(const T* address) {
  return *address;
}
template <class T>
T __ldcg(const T* address) {
  return *address;
}
template <class T>
T __ldcs(const T* address) {
  return *address;
}
template <class T>
T __ldcv(const T* address) {
  return *address;
}
template <class T>
void __stcg(T* address, std::type_identity_t<T> value) {
  *address = value;
}
template <class T>
void __stcs(T* address, std::type_identity_t<T> value) {
  *address = value;
}
template <class T>
void __stwt(T* address, std::type_identity_t<T> value) {
  *address = value;
}

// ---- Bits --------------------------------------------------------------------------------------
inline int __popc(unsigned value) {
  return __builtin_popcount(value);
}
inline int __popcll(unsigned long long value) {
  return __builtin_popcountll(value);
}
inline int __clz(int value) {
  return value == 0 ? 32 : __builtin_clz(static_cast<unsigned>(value));
}
inline int __clzll(long long value) {
  return value == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(value));
}
inline int __ffs(int value) {
  return __builtin_ffs(value);
}
inline int __ffsll(long long value) {
  return __builtin_ffsll(value);
}
inline unsigned __brev(unsigned value) {
  unsigned result = 0;
  for (int bit = 0; bit < 32; ++bit) result |= ((value >> bit) & 1U) << (31 - bit);
  return result;
}
inline int __mulhi(int a, int b) {
  return static_cast<int>((static_cast<long long>(a) * b) >> 32);
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((static_cast<unsigned long long>(a) * b) >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<unsigned long long>((static_cast<Wide>(a) * b) >> 64);
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  const unsigned long long both = (static_cast<unsigned long long>(high) << 32) | low;
  return static_cast<unsigned>((both << (shift & 31U)) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  const unsigned long long both = (static_cast<unsigned long long>(high) << 32) | low;
  return static_cast<unsigned>(both >> (shift & 31U));
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const unsigned long long both = (static_cast<unsigned long long>(b) << 32) | a;
  unsigned result = 0;
  for (unsigned byte = 0; byte < 4; ++byte) {
    const unsigned choice = (selector >> (4 * byte)) & 0xfU;
    unsigned value = static_cast<unsigned>(both >> (8 * (choice & 7U))) & 0xffU;
    if (choice & 8U) value = (value & 0x80U) ? 0xffU : 0U;  // Repeats the sign.
    result |= value << (8 * byte);
  }
  return result;
}
inline unsigned __float_as_uint(float value) {
  return emulation::detail::bits_to<unsigned>(value);
}
inline int __float_as_int(float value) {
  return emulation::detail::bits_to<int>(value);
}
inline float __uint_as_float(unsigned value) {
  return emulation::detail::bits_to<float>(value);
}
inline float __int_as_float(int value) {
  return emulation::detail::bits_to<float>(value);
}
inline long long __double_as_longlong(double value) {
  return emulation::detail::bits_to<long long>(value);
}
inline double __longlong_as_double(long long value) {
  return emulation::detail::bits_to<double>(value);
}

// ---- Arithmetic with one rounding, never fused by a compiler -----------------------------------
inline float __fmaf_rn(float a, float b, float c) {
  return std::fma(a, b, c);
}
inline float __fadd_rn(float a, float b) {
  return a + b;
}
inline float __fsub_rn(float a, float b) {
  return a - b;
}
inline float __fmul_rn(float a, float b) {
  return a * b;
}
inline float __fdiv_rn(float a, float b) {
  return a / b;
}
inline float __frcp_rn(float a) {
  return 1.0F / a;
}
inline float __fsqrt_rn(float a) {
  return std::sqrt(a);
}
inline double __fma_rn(double a, double b, double c) {
  return std::fma(a, b, c);
}
inline double __dadd_rn(double a, double b) {
  return a + b;
}
inline double __dsub_rn(double a, double b) {
  return a - b;
}
inline double __dmul_rn(double a, double b) {
  return a * b;
}
inline double __ddiv_rn(double a, double b) {
  return a / b;
}
inline double __dsqrt_rn(double a) {
  return std::sqrt(a);
}
inline int __float2int_rn(float a) {
  return static_cast<int>(std::nearbyint(a));
}
inline int __float2int_rz(float a) {
  return static_cast<int>(a);
}
inline int __float2int_rd(float a) {
  return static_cast<int>(std::floor(a));
}
inline int __float2int_ru(float a) {
  return static_cast<int>(std::ceil(a));
}
inline unsigned __float2uint_rn(float a) {
  return static_cast<unsigned>(std::nearbyint(a));
}
inline float __int2float_rn(int a) {
  return static_cast<float>(a);
}
inline float __uint2float_rn(unsigned a) {
  return static_cast<float>(a);
}
inline float __double2float_rn(double a) {
  return static_cast<float>(a);
}
inline float __saturatef(float a) {
  return a > 0.0F ? (a < 1.0F ? a : 1.0F) : 0.0F;
}

// ---- Mathematics -------------------------------------------------------------------------------
inline float rsqrtf(float a) {
  return 1.0F / std::sqrt(a);
}
inline double rsqrt(double a) {
  return 1.0 / std::sqrt(a);
}
inline float __frsqrt_rn(float a) {
  return static_cast<float>(1.0 / std::sqrt(double{a}));
}
inline float __fdividef(float a, float b) {
  return a / b;
}
// The C library declares (but does not define) these names, hence noexcept.
inline float __expf(float a) noexcept {
  return std::exp(a);
}
inline float __exp10f(float a) noexcept {
  return std::pow(10.0F, a);
}
inline float __logf(float a) noexcept {
  return std::log(a);
}
inline float __log2f(float a) noexcept {
  return std::log2(a);
}
inline float __log10f(float a) noexcept {
  return std::log10(a);
}
inline float __powf(float a, float b) noexcept {
  return std::pow(a, b);
}
inline float __sinf(float a) noexcept {
  return std::sin(a);
}
inline float __cosf(float a) noexcept {
  return std::cos(a);
}

// CUDA has min and max for numbers in the global namespace, with the usual conversions.
template <class A, class B>
requires std::is_arithmetic_v<A> && std::is_arithmetic_v<B>
constexpr std::common_type_t<A, B> min(A a, B b) {
  using T = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<T>) {
    return std::fmin(static_cast<T>(a), static_cast<T>(b));
  } else {
    return static_cast<T>(b) < static_cast<T>(a) ? static_cast<T>(b) : static_cast<T>(a);
  }
}
template <class A, class B>
requires std::is_arithmetic_v<A> && std::is_arithmetic_v<B>
constexpr std::common_type_t<A, B> max(A a, B b) {
  using T = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<T>) {
    return std::fmax(static_cast<T>(a), static_cast<T>(b));
  } else {
    return static_cast<T>(a) < static_cast<T>(b) ? static_cast<T>(b) : static_cast<T>(a);
  }
}
