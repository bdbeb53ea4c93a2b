#include "kernels/base/denormals.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include <cstdint>

namespace dpt {
namespace {

#if defined(__x86_64__)
// MXCSR: bit 15 is "flush to zero" (results), bit 6 is "denormals are zero" (operands). Every
// 64-bit processor of the last fifteen years has both bits, and so does every processor with AVX.
constexpr std::uint64_t kFlush = 0x8040;
std::uint64_t control() noexcept {
  return _mm_getcsr();
}
void set_control(std::uint64_t value) noexcept {
  _mm_setcsr(static_cast<unsigned>(value));
}
#elif defined(__aarch64__)
// FPCR: bit 24 (FZ) flushes operands and results of single and double precision.
constexpr std::uint64_t kFlush = std::uint64_t{1} << 24;
std::uint64_t control() noexcept {
  std::uint64_t value = 0;
  asm volatile("mrs %0, fpcr" : "=r"(value));
  return value;
}
void set_control(std::uint64_t value) noexcept {
  asm volatile("msr fpcr, %0" : : "r"(value));
}
#else
#error "flush_denormals: say how this processor flushes denormal numbers"
#endif

}  // namespace

void flush_denormals() noexcept {
  const std::uint64_t now = control();
  if ((now & kFlush) != kFlush) set_control(now | kFlush);
}

bool flushes_denormals() noexcept {
  return (control() & kFlush) == kFlush;
}

}  // namespace dpt
