#pragma once

#include <cstdint>
#include <string>

#include "kernels/base/types.h"

namespace dpt {

/// Shape of an activation, per sample. After a Flatten, `flat` is true, and `shape` is still that
/// of the image.
struct ActivationShape {
  SampleShape shape;
  bool flat = false;

  std::int64_t elements() const { return shape.elements(); }
  /// Returns the number of channels that a normalisation sees. A channel of an image has one value
  /// per pixel. A feature of a vector is a channel with a single value.
  std::int64_t channels() const { return flat ? elements() : shape.c; }
  std::int64_t positions() const { return elements() / channels(); }
  /// Returns "20x26x26" (C x H x W, as users write it), or "800" for a vector.
  std::string text() const;
};

}  // namespace dpt
