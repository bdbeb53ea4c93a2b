// Perceptual hash of an image. Copies that were compressed again, scaled or made slightly brighter
// have hashes that differ in only a few bits.
//
// The image's brightness is averaged in each cell of a 16x16 grid and transformed by a discrete
// cosine transform. Each bit tells whether one of the 8x8 lowest frequencies, except the constant
// one, is above the median of all of them ("pHash": Zauner, Implementation and Benchmarking of
// Perceptual Image Hash Functions, 2010).
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

/// Returns the hash of an image (H,W,C) of bytes, or of finite floats. REQUIRES:
/// has_perceptual_hash(shape).
std::uint64_t perceptual_hash(std::span<const std::uint8_t> pixels, SampleShape shape);
std::uint64_t perceptual_hash(std::span<const float> pixels, SampleShape shape);

/// Pairs of hashes that differ in at most `distance` bits: their indices (i, j), i < j, in
/// ascending order.
struct SimilarHashes {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs;
  bool complete = true;      ///< false if pairs may be missing, see find_similar_hashes
  bool interrupted = false;  ///< true if `wants_stop` ended the search
};

/// Finds pairs of hashes that differ in at most `distance` bits. If a hash is cut into distance + 1
/// parts, two such hashes are equal in one of them, so only hashes with an equal part are compared.
/// If more than `most_equal` hashes share a part, each is compared only with the next most_equal /
/// 2 of them in the order of the remaining bits. This may miss pairs, but keeps the time
/// near-linear in the number of hashes for any input. The search ends after `most_pairs` pairs.
/// REQUIRES: fewer than 2^32 hashes, distance below 32.
SimilarHashes find_similar_hashes(std::span<const std::uint64_t> hashes, int distance, int workers,
                                  const std::function<bool()>& wants_stop,
                                  std::size_t most_equal = 4096,
                                  std::size_t most_pairs = std::size_t{1} << 21);

}  // namespace dpt
