// Host vectors of bf16 numbers, and the allowed error of a bf16 result.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "kernels/common/bf16.h"
#include "tests/support/op_runner.h"

namespace dpt::testing {

inline std::vector<Bf16> rounded(const std::vector<float>& values) {
  std::vector<Bf16> result;
  for (const float value : values) result.push_back(to_bf16(value));
  return result;
}
inline std::vector<float> widened(const std::vector<Bf16>& values) {
  std::vector<float> result;
  for (const Bf16 value : values) result.push_back(to_float(value));
  return result;
}

/// Returns random whole numbers from -4 to 3. bf16 holds them, and fp32 holds every sum of their
/// products, so the correct result of a sum of products is known to the bit.
inline std::vector<float> whole_values(std::int64_t count, std::uint64_t seed) {
  std::vector<float> values = random_values(count, seed);
  for (float& value : values) value = std::floor(value * 4);
  return values;
}

inline std::vector<double> rounded_to_bf16(std::vector<double> values) {
  for (double& value : values)
    value = static_cast<double>(to_float(to_bf16(static_cast<float>(value))));
  return values;
}

/// Checks every number with is_right(got, want).
template <class IsRight>
void check_each(const std::string& what, const std::vector<float>& got,
                const std::vector<double>& want, const IsRight& is_right) {
  INFO(what);
  REQUIRE(got.size() == want.size());
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!is_right(static_cast<double>(got[i]), want[i])) ++wrong;
  }
  CHECK(wrong == 0);
}

/// Checks whole numbers that were computed with small errors in fp32 and rounded to bf16: a number
/// between two neighbours may have gone to the other one.
inline void check_neighbours(const std::string& what, const std::vector<float>& got,
                             const std::vector<double>& want) {
  check_each(what, got, want, [](double value, double wanted) {
    return std::abs(value - wanted) <= 0x1p-7 * std::abs(wanted) + 1e-3;
  });
}

/// Checks bf16 results. A result is an fp32 number (whose error is far smaller) rounded once to 8
/// bits of mantissa: its relative error is 2^-8, or slightly more here. A result near zero through
/// cancellation has the fp32 error of the terms.
inline void check_rounded(const std::string& what, const std::vector<float>& got,
                          const std::vector<double>& want) {
  check_each(what, got, want, [](double value, double wanted) {
    if (std::isfinite(wanted)) {
      return std::abs(value - wanted) <= 0x1.1p-8 * std::abs(wanted) + 2e-6;
    }
    return value == wanted || (std::isnan(value) && std::isnan(wanted));
  });
}

}  // namespace dpt::testing
