// A hash of what an image looks like: copies that were compressed again, scaled or made a little
// brighter have hashes that differ in few bits.
//
// The image's brightness is averaged over a grid of 16x16 cells; of its discrete cosine
// transform, the 8x8 lowest frequencies but the constant one say, with one bit each, whether they
// are above their median ("pHash": Zauner, Implementation and Benchmarking of Perceptual Image Hash
// Functions, 2010).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "kernels/base/types.h"

namespace dpt {

/// Returns true if images of this shape have enough pixels for the hash: at least 8x8.
bool has_perceptual_hash(SampleShape shape);

/// The hash of an image (H,W,C) of bytes, or of finite floats. REQUIRES:
/// has_perceptual_hash(shape).
std::uint64_t perceptual_hash(std::span<const std::uint8_t> pixels, SampleShape shape);
std::uint64_t perceptual_hash(std::span<const float> pixels, SampleShape shape);

/// Pairs (i, j), i < j, in ascending order, of hashes that differ in `distance` bits at most.
struct SimilarHashes {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs;
  bool complete = true;      ///< false: there may be more, see find_similar_hashes
  bool interrupted = false;  ///< `wants_stop` said so
};

/// Two hashes that differ in `distance` bits at most are equal in one of distance + 1 parts, so
/// only those that are need a comparison. Where more than `most_equal` hashes share a part, each of
/// them is compared with the most_equal / 2 that follow it in the order of the remaining bits,
/// which may miss pairs: so the time is near-linear in the number of hashes whatever they are.
/// `most_pairs`: number of pairs at which the search ends. REQUIRES: fewer than 2^32 hashes,
/// distance below 32.
SimilarHashes find_similar_hashes(std::span<const std::uint64_t> hashes, int distance, int workers,
                                  const std::function<bool()>& wants_stop,
                                  std::size_t most_equal = 4096,
                                  std::size_t most_pairs = std::size_t{1} << 21);

}  // namespace dpt
