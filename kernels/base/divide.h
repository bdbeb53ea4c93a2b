// Division that rounds up, and division by an invariant divisor through multiplication. Device code
// needs the second for index arithmetic, because a division takes dozens of instructions there.
// Method: Granlund and Montgomery, "Division by invariant integers using multiplication", PLDI
// 1994.
#pragma once

#include <cassert>
#include <cstdint>

#include "kernels/base/host_device.h"

namespace dpt {

/// Returns the number of blocks of size `by` that cover `count`. REQUIRES: count >= 0, by >= 1.
DPT_HOST_DEVICE constexpr std::int64_t ceil_div(std::int64_t count, std::int64_t by) {
  return (count + by - 1) / by;
}

/// Returns the smallest multiple of `unit` that is not below `value`. REQUIRES: value >= 0, unit >=
/// 1, and the result fits.
template <class T>
DPT_HOST_DEVICE constexpr T align_up(T value, T unit) {
  return (value + unit - 1) / unit * unit;
}

/// Divides numbers below 2^31. With s = ceil(log2 d) and m = ceil(2^(31+s) / d), the quotient is n
/// m / 2^(31+s). Rounding makes m too large by a relative error below d / 2^(31+s) <= 2^-31, which
/// is too small to change the quotient of any n.
class Divider {
 public:
  Divider() = default;
  /// REQUIRES: 1 <= divisor < 2^31.
  explicit Divider(std::int64_t divisor) : divisor_(static_cast<std::uint32_t>(divisor)) {
    assert(divisor >= 1 && divisor < (std::int64_t{1} << 31));
    int log2 = 0;
    while ((std::int64_t{1} << log2) < divisor) ++log2;
    if (log2 == 0) return;
    const std::uint64_t power = std::uint64_t{1} << (31 + log2);
    factor_ = static_cast<std::uint32_t>((power + divisor_ - 1) / divisor_);
    shift_ = static_cast<std::uint32_t>(log2 - 1);
  }

  DPT_HOST_DEVICE std::uint32_t quotient(std::uint32_t n) const {
    const auto high = static_cast<std::uint32_t>((static_cast<std::uint64_t>(n) * factor_) >> 32);
    return divisor_ == 1 ? n : high >> shift_;
  }
  /// Sets n to the remainder and returns the quotient.
  DPT_HOST_DEVICE std::uint32_t split(std::uint32_t& n) const {
    const std::uint32_t result = quotient(n);
    n -= result * divisor_;
    return result;
  }
  DPT_HOST_DEVICE std::uint32_t remainder(std::uint32_t n) const {
    split(n);
    return n;
  }
  DPT_HOST_DEVICE std::uint32_t divisor() const { return divisor_; }

 private:
  std::uint32_t divisor_ = 1, factor_ = 0, shift_ = 0;
};

}  // namespace dpt
