// Philox4x32-10: random numbers as a pure function of (key, counter). So no generator has state,
// and no result depends on thread, rank or resume. Source: Salmon et al., "Parallel random numbers:
// as easy as 1, 2, 3", SC 2011.
#pragma once

#include <cstdint>

#include "kernels/base/host_device.h"

namespace dpt::philox {

/// Purpose of a draw. It is part of the key, so that no two uses share a stream.
enum class Use : std::uint32_t {
  init = 1,
  shuffle = 2,
  augment = 3,
  split = 4,
  dropout = 5,
  synthesis = 6,
  transform = 7,
  balance = 8,
  mix = 9
};

struct Block {
  std::uint32_t v[4];
};

/// Returns a block of 128 random bits. Key = (seed, use); counter = (a, b), two 64-bit words.
DPT_HOST_DEVICE inline Block block(std::uint64_t seed, Use use, std::uint64_t a, std::uint64_t b) {
  // Put the seed's high half into the key with `use`, so that all 64-bit seeds differ.
  std::uint32_t k0 = static_cast<std::uint32_t>(seed);
  std::uint32_t k1 =
      static_cast<std::uint32_t>(seed >> 32) ^ (static_cast<std::uint32_t>(use) * 0x9E3779B9U);
  std::uint32_t c0 = static_cast<std::uint32_t>(a), c1 = static_cast<std::uint32_t>(a >> 32);
  std::uint32_t c2 = static_cast<std::uint32_t>(b), c3 = static_cast<std::uint32_t>(b >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = 0xD2511F53ULL * c0;
    const std::uint64_t p1 = 0xCD9E8D57ULL * c2;
    const std::uint32_t n0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
    const std::uint32_t n2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<std::uint32_t>(p1);
    c3 = static_cast<std::uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return {{c0, c1, c2, c3}};
}

/// Returns a uniform number in [0, 1) made of 24 bits, which a float represents exactly.
DPT_HOST_DEVICE inline float uniform(std::uint32_t bits) {
  return static_cast<float>(bits >> 8) * 0x1.0p-24F;
}

/// Returns a uniform integer in [0, n), n >= 1, by multiplication (Lemire). The bias is below n /
/// 2^32.
DPT_HOST_DEVICE inline std::uint32_t below(std::uint32_t bits, std::uint32_t n) {
  return static_cast<std::uint32_t>((static_cast<std::uint64_t>(bits) * n) >> 32);
}

}  // namespace dpt::philox
