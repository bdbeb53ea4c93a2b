// Transforms that run on the host, on images of 8-bit pixels, in the threads that decode. Names,
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

/// The random numbers of one transform for one sample in one epoch: a pure function of the
/// constructor's arguments, whatever thread, device or process the sample falls to.
class DrawStream {
 public:
  /// `place`: of the transform in its list, from 0. With Use::mix, `sample` is a batch.
  DrawStream(std::uint64_t seed, std::int64_t epoch, std::int64_t sample, int place,
             philox::Use use = philox::Use::transform);
  /// In [low, high), with 32 random bits.
  double uniform(double low = 0, double high = 1);
  /// An integer in [0, n), 0 < n <= 2^32.
  std::int64_t below(std::int64_t n);
  /// Draws an event of probability p; returns true if it happens.
  bool happens(double p) { return uniform() < p; }

 private:
  std::uint32_t next();

  std::uint64_t seed_, epoch_and_place_, sample_;
  philox::Use use_;
  philox::Block block_{};
  std::uint64_t used_ = 0;  ///< words
};

/// Const and thread-safe.
class HostTransform {
 public:
  virtual ~HostTransform() = default;
  /// The size of the result for images of size `before`; nothing where sizes differ between
  /// images.
  virtual std::optional<Size2> size_after(std::optional<Size2> before) const { return before; }
  /// Returns true if the transform brings images of any size to one size, or nearer to one. Without
  /// such a transform they are resized to the model's input first.
  virtual bool gives_size() const { return false; }
  /// Returns true if images are decoded at a reduced size, where that is possible.
  virtual bool reduces_decoding() const { return false; }
  virtual void apply(Image& image, DrawStream& draws) const = 0;
  /// For a transform that keeps and resizes a part of the image and may come first in a list:
  /// what apply would do, before the image is decoded. Nothing where it must see the whole
  /// image.
  virtual std::optional<ImagePart> choose(Size2 image, DrawStream& draws) const;
  /// True if apply must also be called on the part that `choose` returned, to complete the
  /// transform.
  virtual bool applies_after_choose() const { return false; }
  /// For a transform that only keeps a part of the image, that part. It draws what apply would.
  virtual std::optional<PixelBox> keeps(Size2 image, DrawStream& draws) const;
};

/// The size of an image whose shorter side is resized to `side`, as v2.Resize(side) has it: the
/// longer side is cut, not rounded.
Size2 with_shorter_side(Size2 image, std::int64_t side);

}  // namespace dpt
