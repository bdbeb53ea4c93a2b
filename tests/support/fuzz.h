// Damages files at random: a reader must either succeed or throw dpt::Error. The damage is seeded,
// so that failures are reproducible.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/base/error.h"

namespace dpt::testing {

using Bytes = std::vector<std::uint8_t>;

/// Changes, cuts, repeats or inserts bytes, a few times.
inline Bytes damaged(Bytes bytes, std::mt19937& random) {
  const auto below = [&](std::size_t n) { return n == 0 ? 0 : random() % n; };
  const std::size_t times = 1 + below(4);
  for (std::size_t i = 0; i < times; ++i) {
    const std::size_t at = below(bytes.size());
    switch (bytes.empty() ? 3 : below(7)) {
      case 0:
        bytes[at] = static_cast<std::uint8_t>(random());
        break;
      case 1:
        bytes[at] ^= static_cast<std::uint8_t>(1U << below(8));
        break;
      case 2:
        bytes.resize(at);
        break;
      case 3:
        bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), 1 + below(5),
                     static_cast<std::uint8_t>(random()));
        break;
      case 4:  // The header, which holds sizes.
        bytes[below(std::min<std::size_t>(bytes.size(), 32))] = below(2) ? 0xff : 0;
        break;
      case 5: {
        const Bytes tail(bytes.begin() + static_cast<std::ptrdiff_t>(at), bytes.end());
        bytes.insert(bytes.end(), tail.begin(), tail.end());
        break;
      }
      default: {
        const std::size_t count = std::min(bytes.size() - at, 1 + below(16));
        for (std::size_t k = 0; k < count; ++k) {
          bytes[at + k] = static_cast<std::uint8_t>(random());
        }
      }
    }
  }
  return bytes;
}

/// Runs `read` on damaged copies and counts the copies that it accepts.
template <class Read>
void fuzz(const std::vector<Bytes>& seeds, int rounds, Read read) {
  std::mt19937 random(4711);
  int taken = 0, refused = 0;
  for (int i = 0; i < rounds; ++i) {
    const Bytes bytes = damaged(seeds[random() % seeds.size()], random);
    try {
      read(bytes);
      ++taken;
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::data);
      ++refused;
    }
  }
  CHECK(refused > rounds / 10);
  CHECK(taken + refused == rounds);
}

}  // namespace dpt::testing
