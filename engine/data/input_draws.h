// Random draws on the host for the input kernel: the rectangles that it erases, and the mixing of
// batches. The numbers are DrawStream's.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/config/train_spec.h"
#include "engine/data/batch_mix.h"
#include "kernels/input_op.h"

namespace dpt {

struct BatchTransformKind;
struct DevicePart;

/// Const and thread-safe. Draws are pure functions of the seed and the arguments.
class InputDraws {
 public:
  InputDraws() = default;  ///< erases and mixes nothing
  /// `input` is the shape of the model's input, `mixed` the shape of mixed samples' targets.
  /// REQUIRES: make_input_desc accepted the transforms.
  InputDraws(const TransformsSpec& transforms, SampleShape input, std::uint64_t seed,
             const TargetShape& mixed = {});

  bool erases() const { return erasing_.has_value(); }
  /// Draws the part of the sample that is erased in the epoch.
  InputBox erased(std::int64_t epoch, std::int64_t sample) const;

  bool mixes() const { return !mixings_.empty(); }
  /// Draws the mixing of batch `index` of the epoch.
  BatchMix mix(std::int64_t epoch, std::int64_t index) const;
  const TargetShape& mixed_targets() const { return mixed_targets_; }

 private:
  struct Erasing {
    const DevicePart* part;
    Variant options;
    int place;  ///< index in the list, on which its random draws depend
  };
  struct Mixing {
    const BatchTransformKind* kind;
    Variant options;
  };
  std::optional<Erasing> erasing_;
  std::vector<Mixing> mixings_;
  Size2 size_;
  std::uint64_t seed_ = 0;
  TargetShape mixed_targets_;
};

}  // namespace dpt
