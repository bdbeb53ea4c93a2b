// Relation between the pixels of x and those of y along one axis (PixelMapDesc), in both
// directions.
#pragma once

#include <cstdint>

#include "kernels/base/divide.h"
#include "kernels/base/host_device.h"
#include "kernels/element_descs.h"

namespace dpt {

struct PixelAxis {
  std::int64_t in, out;
  Divider scale;
  std::int64_t before;

  /// Returns the input pixel that output pixel `p` shows; negative if it shows none.
  DPT_HOST_DEVICE std::int64_t source(std::int64_t p) const {
    if (p < before) return -1;
    const std::int64_t i = scale.quotient(static_cast<std::uint32_t>(p - before));
    return i < in ? i : -1;
  }

  /// Output pixels [begin, end) that show one input pixel.
  struct Places {
    std::int64_t begin, end;
  };
  DPT_HOST_DEVICE Places places(std::int64_t i) const {
    const std::int64_t begin = before + i * scale.divisor(), end = begin + scale.divisor();
    return {begin < 0 ? 0 : begin, end < out ? end : out};
  }
};

inline PixelAxis pixel_axis_h(const PixelMapDesc& d) {
  return {d.in.h, d.out.h, Divider(d.scale.h), d.before.h};
}
inline PixelAxis pixel_axis_w(const PixelMapDesc& d) {
  return {d.in.w, d.out.w, Divider(d.scale.w), d.before.w};
}

}  // namespace dpt
