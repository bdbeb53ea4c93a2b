// Random draws on the host for the input kernel: the rectangles of RandomErasing, and the mixing of
// batches by MixUp and CutMix. Distributions, their order and their rounding are those of
// torchvision 0.29 (transforms/v2/_augment.py); the numbers are DrawStream's.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/config/train_spec.h"
#include "engine/data/host_choices.h"
#include "kernels/input_op.h"

namespace dpt {

/// Mixing of a batch: each sample with the one before it in the batch, the first with the last.
struct BatchMix {
  InputMix input;
  float own = 1, partner = 0;  ///< weights of the sample's targets and its partner's
};

/// The table of the transforms of whole batches, for the Catalog.
const VariantTable& batch_transform_table();

/// A number of the distribution Beta(alpha, alpha), alpha above 0.
double draw_beta(double alpha, DrawStream& draws);
/// MixUp with the factor `lambda`, and CutMix with the box that torchvision makes of it and of the
/// middle (x, y) for samples of `size`.
BatchMix mix_up(double lambda, Size2 size);
BatchMix cut_mix(double lambda, std::int64_t x, std::int64_t y, Size2 size);

/// Const and thread-safe. Draws are pure functions of the seed and the arguments.
class InputDraws {
 public:
  InputDraws() = default;  ///< erases and mixes nothing
  /// `input` is the model's; `mixed` are the targets of mixed samples. REQUIRES: the transforms
  /// were accepted by make_input_desc.
  InputDraws(const TransformsSpec& transforms, SampleShape input, std::uint64_t seed,
             const TargetShape& mixed = {});

  bool erases() const { return erasing_.has_value(); }
  /// Which part of the sample is erased in the epoch.
  InputBox erased(std::int64_t epoch, std::int64_t sample) const;

  bool mixes() const { return !mixings_.empty(); }
  /// Draws the mixing of batch `index` of the epoch.
  BatchMix mix(std::int64_t epoch, std::int64_t index) const;
  const TargetShape& mixed_targets() const { return mixed_targets_; }

 private:
  struct Erasing {
    ErasingRanges ranges;
    double p = 0;
    int place = 0;  ///< in the list
  };
  struct Mixing {
    bool cuts = false;
    double alpha = 1;
  };
  std::optional<Erasing> erasing_;
  std::vector<Mixing> mixings_;
  Size2 size_;
  std::uint64_t seed_ = 0;
  TargetShape mixed_targets_;
};

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

/// Returns a sentence if training and evaluation normalise differently, so that an evaluation shows
/// the network values other than those it was trained on; empty otherwise.
std::string different_normalisation(const TransformsSpec& transforms);

/// Returns a message for a mean of Normalize above 1, which samples of 0 to 1 do not have; empty if
/// there is none.
std::string large_mean(const DataSpec& data);

/// Returns a message for random transforms of evaluations, which then depend on chance; empty if
/// there are none. New runs are refused with it; stored ones may have them.
std::string random_evaluation(const TransformsSpec& transforms);

/// Throws ErrorKind::usage where the list of evaluation has a transform that only training has.
void check_evaluation_transforms(const TransformsSpec& transforms);

}  // namespace dpt
