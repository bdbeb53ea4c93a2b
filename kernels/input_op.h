// The input kernel, which makes activations of raw samples: its description, the addresses that one
// call needs, and the interface. A part of the Backend contract (kernels/backend.h, whose rules
// apply).
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/base/types.h"

namespace dpt {

/// A rectangle of a sample that goes into the model, inside of it; without a height there is none.
/// It has no initialisers, so that the threads of device code can share one.
struct InputBox {
  std::int32_t top, left, height, width;
  bool operator==(const InputBox&) const = default;
};

/// Mix of each sample of a batch with its partner: inside `box` it becomes own * itself + partner *
/// the other, or the other alone if own is 0; outside it stays as it is.
struct InputMix {
  float own = 1, partner = 0;
  InputBox box{};
  bool operator==(const InputMix&) const = default;
};

/// The replica's first kernel: raw samples -> activations. Order of operations: scale to 0..1
/// (u8 raw only), crop with zero padding, flip, normalise, erase, mix. See kernels/common/augment.h
/// for the formulas and random draws, which are the same on every backend; what is erased and how
/// samples are mixed is drawn on the host.
struct InputDesc {
  std::int64_t batch = 0;
  DType raw_type = DType::u8;  ///< u8 or f32
  SampleShape raw, out;        ///< equal H and W unless `crop`
  bool crop = false;           ///< random crop of out.h x out.w from the zero-padded raw image
  std::int64_t crop_padding = 0;
  bool flip = false;  ///< horizontal, with probability flip_probability
  float flip_probability = 0.5F;
  std::vector<float> mean, stddev;  ///< per channel, empty = no normalisation; (x - mean) / std
  bool erase = false;               ///< a rectangle of each sample gets erase_value
  std::vector<float> erase_value;   ///< per channel
  bool mix = false;                 ///< each sample with a partner
  DType type = DType::f32;
  std::uint64_t seed = 0;
};

/// Addresses of one call.
struct InputArgs {
  DevPtr raw;    ///< raw samples, each raw.elements() of raw_type, indexed by slots
  DevPtr slots;  ///< i32 (batch): sample k is raw[slots[k]]
  DevPtr ids;    ///< i64 (batch): the sample's index in its data set, key of its random draws
  DevPtr epoch;  ///< i64 scalar, key of the random draws
  DevPtr y;      ///< (batch, out), overwritten
  /// InputBox (batch): what is erased of a sample, in places of its output. Null without `erase`.
  DevPtr boxes{};
  /// InputMix, for the whole batch; null without `mix`. Sample k's partner is then sample k - 1 of
  /// `slots`, `ids` and `boxes`, which have an entry before the first.
  DevPtr mix{};
};

class InputOp {
 public:
  virtual ~InputOp() = default;
  virtual void run(const InputArgs& args) = 0;
};

}  // namespace dpt
