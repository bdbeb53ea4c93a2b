// Mixing of the samples of a batch by MixUp and CutMix, with their targets. Distributions, their
// order and their rounding are those of torchvision 0.29 (transforms/v2/_augment.py).
#pragma once

#include <cstdint>

#include "engine/config/train_spec.h"
#include "engine/data/batch_mix.h"
#include "engine/data/host_transform.h"

namespace dpt {

/// Draws a number from the distribution Beta(alpha, alpha), alpha > 0.
double draw_beta(double alpha, DrawStream& draws);
/// Returns the mixing of MixUp with the factor `lambda`, or that of CutMix with torchvision's box
/// for this factor and the centre (x, y) in samples of `size`.
BatchMix mix_up(double lambda, Size2 size);
BatchMix cut_mix(double lambda, std::int64_t x, std::int64_t y, Size2 size);

/// Returns the shape of mixed samples' targets; class labels become soft labels of `outputs`
/// values.
TargetShape mixed_targets(const TargetShape& data, std::int64_t outputs);

/// Targets of a sample before mixing: its label, and its row if the data has rows.
struct SampleTargets {
  std::int32_t label = 0;
  const float* row = nullptr;
};
/// Writes the mixture to `row` as mixed.values floats, computed as in torchvision: partner * its
/// weight + own * its weight. Returns the index of the first maximum if `mixed` has labels,
/// otherwise own.label.
std::int32_t mix_targets(const TargetShape& mixed, const BatchMix& mix, const SampleTargets& own,
                         const SampleTargets& partner, float* row);

}  // namespace dpt
