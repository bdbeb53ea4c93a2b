// Compares a backend's numbers with each other and with the double-precision reference.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

namespace dpt::testing {

/// Returns true if the bits are equal, so that -0 differs from 0 and a NaN equals itself.
template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

/// Checks `got` against `want`: the difference may be `tolerance` times the largest magnitude in
/// `want` (sums of n products err by some parts in 2^24 of their largest terms, not of the result).
inline void check_close(const std::string& what, const std::vector<float>& got,
                        const std::vector<double>& want, double tolerance = 5e-6) {
  INFO(what);
  REQUIRE(got.size() == want.size());
  double largest = 0.3;
  for (const double v : want) {
    if (std::isfinite(v)) largest = std::max(largest, std::abs(v));
  }
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double value = static_cast<double>(got[i]);
    const bool same = std::isfinite(want[i])
                          ? std::abs(value - want[i]) <= tolerance * largest
                          : value == want[i] || (std::isnan(value) && std::isnan(want[i]));
    if (same) continue;
    INFO("element ", i, " of ", got.size(), ": got ", value, ", want ", want[i]);
    CHECK(same);
    return;  // The first difference says enough.
  }
}

}  // namespace dpt::testing
