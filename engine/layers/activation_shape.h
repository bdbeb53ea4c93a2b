#pragma once

#include <cstdint>
#include <string>

#include "kernels/base/types.h"

namespace dpt {

/// An activation's shape as layers see it: per sample, and whether a Flatten has made a vector of
/// it (then `shape` still tells the image it came from).
struct ActivationShape {
  SampleShape shape;
  bool flat = false;

  std::int64_t elements() const { return shape.elements(); }
  /// Returns the channels that a normalisation sees: a channel of an image has a value at each
  /// pixel, a feature of a vector one.
  std::int64_t channels() const { return flat ? elements() : shape.c; }
  std::int64_t positions() const { return elements() / channels(); }
  /// "20x26x26" (C x H x W as users write it) or "800".
  std::string text() const;
};

}  // namespace dpt
