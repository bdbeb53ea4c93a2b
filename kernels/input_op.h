// The input kernel, which turns raw samples into activations: its description, the addresses of one
// call, and the interface. A part of the Backend contract (kernels/backend.h, whose rules apply).
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/base/types.h"

namespace dpt {

/// Rectangle inside a sample in the form that the model gets. Empty if its height is 0. Has no
/// initialisers, so that it can be in shared memory of device code.
struct InputBox {
  std::int32_t top, left, height, width;
  bool operator==(const InputBox&) const = default;
};

/// Mix of each sample of a batch with its partner. Inside `box`, a sample x with partner z becomes
/// own * x + partner * z (just z if own is 0); outside, x is unchanged.
struct InputMix {
  float own = 1, partner = 0;
  InputBox box{};
  bool operator==(const InputMix&) const = default;
};

/// The first kernel of a replica. It turns raw samples into activations. Order of operations: scale
/// to 0..1 (u8 raw only), crop with zero padding, flip, normalise, erase, mix. See
/// kernels/common/augment.h for the formulas and random draws, which are the same on every backend.
/// The erased boxes and the mix are drawn on the host.
struct InputDesc {
  std::int64_t batch = 0;
  DType raw_type = DType::u8;  ///< u8 or f32
  SampleShape raw, out;        ///< equal H and W unless `crop`
  bool crop = false;           ///< random crop of out.h x out.w from the zero-padded raw image
  std::int64_t crop_padding = 0;
  bool flip = false;  ///< horizontal flip with probability flip_probability
  float flip_probability = 0.5F;
  std::vector<float> mean, stddev;  ///< per channel, empty = no normalisation; (x - mean) / std
  bool erase = false;               ///< true: a rectangle of each sample is set to erase_value
  std::vector<float> erase_value;   ///< per channel
  bool mix = false;                 ///< true: each sample is mixed with a partner
  DType type = DType::f32;
  std::uint64_t seed = 0;
};

/// Addresses of one call.
struct InputArgs {
  DevPtr raw;    ///< raw samples, each raw.elements() of raw_type, indexed by slots
  DevPtr slots;  ///< i32 (batch): sample k is raw[slots[k]]
  DevPtr ids;    ///< i64 (batch): index of each sample in its data set, a key of its random draws
  DevPtr epoch;  ///< i64 scalar, a key of the random draws
  DevPtr y;      ///< (batch, out), overwritten
  /// InputBox (batch): the erased box of each sample, in output coordinates. Null without `erase`.
  DevPtr boxes{};
  /// InputMix for the whole batch; null without `mix`. If given, the partner of sample k is sample
  /// k - 1, so `slots`, `ids` and `boxes` have one more entry, before the first.
  DevPtr mix{};
};

class InputOp {
 public:
  virtual ~InputOp() = default;
  virtual void run(const InputArgs& args) = 0;
};

}  // namespace dpt
