// The samples of an epoch and their order: pure functions of (seed, epoch) without a state to save.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/data/split.h"
#include "kernels/base/philox.h"

namespace dpt {

struct SamplingOptions {
  std::uint64_t seed = 1;
  bool shuffle = true;
  Sampler sampler = Sampler::uniform;
};

/// Samples of an epoch, in its order.
struct EpochOrder {
  std::vector<std::int64_t> indices;  ///< indices of the samples in the source
  std::vector<std::int64_t> keys;     ///< Occurrence::key of each sample; empty: the indices

  const std::vector<std::int64_t>& draw_keys() const { return keys.empty() ? indices : keys; }
};

/// Throws ErrorKind::usage for Sampler::balanced without class labels.
void check_sampler(Sampler sampler, const DataSource& source);

/// Order of the samples in each epoch of a split. Const and thread-safe.
class Sampling {
 public:
  /// `split` must outlive the object. Throws as check_sampler does.
  Sampling(const Split& split, const SamplingOptions& options);

  /// Returns the order of an epoch: as many samples as the split has.
  EpochOrder epoch(std::int64_t epoch) const;

 private:
  EpochOrder uniform(std::int64_t epoch) const;
  EpochOrder balanced(std::int64_t epoch) const;

  const Split& split_;
  SamplingOptions options_;
  std::vector<std::vector<std::int64_t>> classes_;  ///< balanced: indices by class, none empty
};

/// Returns a permutation of 0..n-1, a pure function of the arguments (Fisher-Yates).
std::vector<std::int64_t> permutation(std::int64_t n, std::uint64_t seed, philox::Use use,
                                      std::uint64_t counter);

/// Returns the order of one epoch of Sampler::uniform: a permutation of 0..n-1, a pure function of
/// (seed, epoch). Without `shuffle`, the identity.
std::vector<std::int64_t> epoch_order(std::int64_t n, std::uint64_t seed, std::int64_t epoch,
                                      bool shuffle);

}  // namespace dpt
