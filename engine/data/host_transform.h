// Transforms that run on the host, on images of 8-bit pixels, in the decoder threads. Names,
// options and results are those of torchvision.transforms.v2 on PIL images; Letterbox follows
// ultralytics.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "engine/config/train_spec.h"
#include "kernels/base/philox.h"
#include "kernels/image/image.h"

namespace dpt {

/// Random numbers of one transform for one sample in one epoch: a pure function of the
/// constructor's arguments, independent of thread, device and process.
class DrawStream {
 public:
  /// `place`: index of the transform in its list, from 0. With Use::mix, `sample` is the index of a
  /// batch.
  DrawStream(std::uint64_t seed, std::int64_t epoch, std::int64_t sample, int place,
             philox::Use use = philox::Use::transform);
  /// Returns a number in [low, high) with 32 random bits.
  double uniform(double low = 0, double high = 1);
  /// Returns an integer in [0, n). REQUIRES: 0 < n <= 2^32.
  std::int64_t below(std::int64_t n);
  /// Draws an event of probability p; returns true if it happens.
  bool happens(double p) { return uniform() < p; }

 private:
  std::uint32_t next();

  std::uint64_t seed_, epoch_and_place_, sample_;
  philox::Use use_;
  philox::Block block_{};
  std::uint64_t used_ = 0;  ///< number of words that were drawn
};

/// A transform of images on the host. Const and thread-safe.
class HostTransform {
 public:
  virtual ~HostTransform() = default;
  /// Returns the size of the result for images of size `before`; nothing if sizes differ between
  /// images.
  virtual std::optional<Size2> size_after(std::optional<Size2> before) const { return before; }
  /// Returns true if the transform gives images of different sizes the same size, or the same
  /// shorter side. Without such a transform, images are first resized to the model's input.
  virtual bool gives_size() const { return false; }
  /// Returns true if images may be decoded at a reduced size.
  virtual bool reduces_decoding() const { return false; }
  virtual void apply(Image& image, DrawStream& draws) const = 0;
  /// Returns the part that the transform takes from an image that is not yet decoded, and the size
  /// to which it resizes that part; nothing if `apply` must do the work. Called only for the first
  /// transform of a list.
  virtual std::optional<ImagePart> choose(Size2 image, DrawStream& draws) const;
  /// Returns true if `apply` must also be called on the part that `choose` returned, to complete
  /// the transform.
  virtual bool applies_after_choose() const { return false; }
  /// Returns the part of the image that the transform keeps; nothing unless it only crops. Draws
  /// the same numbers as `apply`.
  virtual std::optional<PixelBox> keeps(Size2 image, DrawStream& draws) const;
};

/// Returns the size of an image whose shorter side is resized to `side`. As in v2.Resize(side), the
/// longer side is truncated, not rounded.
Size2 with_shorter_side(Size2 image, std::int64_t side);

}  // namespace dpt
