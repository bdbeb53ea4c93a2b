// The formulas and random draws of the input kernel, written once for every backend.
//
// A sample goes through these steps: scale to 0..1 (u8 only), random crop from the zero-padded
// image, horizontal flip, normalise, erase a rectangle, mix with another sample that went through
// the same steps. Padding is part of the raw image, as in torchvision's RandomCrop before ToTensor:
// a padded pixel is a raw zero that is normalised like any other. The draws for a sample are a pure
// function of (seed, epoch, sample id), whatever its batch, thread or device.
#pragma once

#include <cstdint>

#include "kernels/base/host_device.h"
#include "kernels/base/philox.h"
#include "kernels/input_op.h"

namespace dpt::augment {

/// Random draws for one sample in one epoch. `top` and `left` are the crop's corner in the padded
/// image.
struct Draw {
  std::uint32_t top = 0;
  std::uint32_t left = 0;
  bool flip = false;
};

/// Returns the draw for sample `id`. `tops` and `lefts` are the numbers of possible corners (padded
/// - crop + 1, at least 1). The words of the block are 0: top, 1: left, 2: flip; word 3 is unused.
DPT_HOST_DEVICE inline Draw draw(std::uint64_t seed, std::int64_t epoch, std::int64_t id,
                                 std::uint32_t tops, std::uint32_t lefts, float flip_probability) {
  const philox::Block bits =
      philox::block(seed, philox::Use::augment, static_cast<std::uint64_t>(epoch),
                    static_cast<std::uint64_t>(id));
  Draw result;
  result.top = philox::below(bits.v[0], tops);
  result.left = philox::below(bits.v[1], lefts);
  result.flip = philox::uniform(bits.v[2]) < flip_probability;
  return result;
}

/// Returns a byte as a number in 0..1 (torchvision's ToTensor).
DPT_HOST_DEVICE inline float unit(std::uint8_t value) {
  return static_cast<float>(value) / 255.0F;
}

/// Normalises like torchvision's Normalize.
DPT_HOST_DEVICE inline float normalise(float value, float mean, float stddev) {
  return (value - mean) / stddev;
}

/// Returns true if the pixel is inside the box.
DPT_HOST_DEVICE inline bool is_in(const InputBox& box, int row, int column) {
  return row >= box.top && row - box.top < box.height && column >= box.left &&
         column - box.left < box.width;
}

/// Mixes two values inside InputMix::box, in the same order as torchvision's MixUp and without a
/// fused multiply-add: partner.mul(1 - lam).add(own.mul(lam)). If mix.own is 0, returns just the
/// partner's value, because 0 times a non-finite value would not be 0.
DPT_HOST_DEVICE inline float mixed(const InputMix& mix, float own, float partner) {
  return mix.own == 0.0F ? partner : partner * mix.partner + own * mix.own;
}

}  // namespace dpt::augment
