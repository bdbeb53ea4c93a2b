// The random masks of dropout, written once for every backend.
//
// A mask is a pure function of (seed, layer, step, sample, unit). It is not stored between forward
// and backward. Neither the partition of a batch nor a resume changes it. A unit is what is dropped
// as a whole: an element, or a channel of a sample.
#pragma once

#include <cstdint>

#include "kernels/base/host_device.h"
#include "kernels/base/philox.h"

namespace dpt::dropout {

/// Number of units whose draws come from one block of random bits.
inline constexpr std::int64_t kGroup = 4;
/// Limit of the number of units of a sample (exclusive), so that groups fit into 32 bits of the
/// counter.
inline constexpr std::int64_t kMaxUnits = std::int64_t{1} << 34;

/// Parameters that the masks of one layer share.
struct Masks {
  std::uint64_t key = 0;  ///< derived from seed and layer
  float p = 0;            ///< probability of being dropped
  float scale = 1;        ///< 1 / (1 - p), the factor of units that are kept
};

/// Returns the masks of the layer that `stream` identifies.
inline Masks masks(std::uint64_t seed, std::uint64_t stream, double p) {
  const philox::Block bits = philox::block(seed, philox::Use::dropout, stream, 0);
  Masks result;
  result.key = bits.v[0] | static_cast<std::uint64_t>(bits.v[1]) << 32;
  result.p = static_cast<float>(p);
  result.scale = static_cast<float>(1.0 / (1.0 - p));
  return result;
}

/// The factors, 0 or `scale`, of units 4 * group to 4 * group + 3.
struct Factors {
  float v[kGroup];
};

/// Returns the factors of a group. Steps count modulo 2^32, so steps 2^32 apart have the same
/// masks.
DPT_HOST_DEVICE inline Factors factors(const Masks& masks, std::int64_t step, std::int64_t id,
                                       std::int64_t group) {
  const std::uint64_t low = static_cast<std::uint32_t>(group);
  const philox::Block bits =
      philox::block(masks.key, philox::Use::dropout, static_cast<std::uint64_t>(id),
                    static_cast<std::uint64_t>(step) << 32 | low);
  Factors result;
  for (int k = 0; k < kGroup; ++k) {
    result.v[k] = philox::uniform(bits.v[k]) < masks.p ? 0.0F : masks.scale;
  }
  return result;
}

}  // namespace dpt::dropout
