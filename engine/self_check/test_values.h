// Inputs for the check of an operation. They keep the reference fast.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/ops.h"
#include "kernels/reference/reference.h"

namespace dpt {

/// Source of test values in (-1, 1), none of them 0: sign * (1 + m / 128) / 2^e with e from 1 to 4.
class TestValues {
 public:
  explicit TestValues(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ULL + 1) {}
  /// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
  std::uint64_t bits() {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15ULL;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  }
  double value() {
    // Powers of two with their signs.
    constexpr std::array<double, 8> kScales = {-0.5, -0.25, -0.125, -0.0625,
                                               0.5,  0.25,  0.125,  0.0625};
    const std::uint64_t r = bits();
    return (1 + static_cast<double>(r & 127) / 128) * kScales[(r >> 7) & 7];
  }
  reference::Values dense(std::size_t count) {
    reference::Values all(count);
    for (double& each : all) each = value();
    return all;
  }
  /// Returns values up to 8, to reach the kinks and tails of activations.
  reference::Values wide(std::size_t count) {
    reference::Values all = dense(count);
    for (double& each : all) each *= 8;
    return all;
  }
  /// Returns about `given` values at random pixels, equally many in each channel; all others are
  /// zero.
  reference::Values sparse(std::size_t count, std::int64_t channels, std::int64_t given) {
    const auto c = static_cast<std::size_t>(channels);
    reference::Values all(count, 0.0);
    for (std::size_t k = 0; k < static_cast<std::size_t>(given); ++k) {
      all[bits() % (count / c) * c + k % c] = value();
    }
    return all;
  }

 private:
  std::uint64_t state_;
};

/// Channels of an operation's input and output, and the multiply-adds that one value of either
/// causes in the reference. Zero for an operation without matrix products.
struct ProductCosts {
  std::int64_t x_channels = 1, y_channels = 1, per_x = 0, per_dy = 0;
};
ProductCosts costs_of(const OpDesc& desc);

/// Returns `count` values. If each causes `products` multiply-adds, most values are zero, so that
/// about 4 million multiply-adds remain.
reference::Values values_for(TestValues& source, std::size_t count, std::int64_t channels,
                             std::int64_t products);

}  // namespace dpt
