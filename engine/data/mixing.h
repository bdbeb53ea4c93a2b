// Mixing of the samples of a batch by MixUp and CutMix, with their targets. Distributions, their
// order and their rounding are those of torchvision 0.29 (transforms/v2/_augment.py).
#pragma once

#include <cstdint>

#include "engine/config/train_spec.h"
#include "engine/data/batch_mix.h"
#include "engine/data/host_transform.h"

namespace dpt {

/// A number of the distribution Beta(alpha, alpha), alpha above 0.
double draw_beta(double alpha, DrawStream& draws);
/// MixUp with the factor `lambda`, and CutMix with the box that torchvision makes of it and of the
/// middle (x, y) for samples of `size`.
BatchMix mix_up(double lambda, Size2 size);
BatchMix cut_mix(double lambda, std::int64_t x, std::int64_t y, Size2 size);

/// The targets of samples once they are mixed, of a model with `outputs`: labels become soft ones.
TargetShape mixed_targets(const TargetShape& data, std::int64_t outputs);

/// The targets of two samples, as the data have them: the label, and the row if there is one.
struct SampleTargets {
  std::int32_t label = 0;
  const float* row = nullptr;
};
/// Writes the mixture to `row`, of mixed.values floats, and returns its label: the first of the
/// largest, if `mixed` has labels. Computed as torchvision does: partner * its part + own * its
/// part.
std::int32_t mix_targets(const TargetShape& mixed, const BatchMix& mix, const SampleTargets& own,
                         const SampleTargets& partner, float* row);

}  // namespace dpt
