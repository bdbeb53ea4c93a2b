// Padding that a convolution's windows need after the image. It follows from the output size. For
// an even kernel, it may be one pixel larger than the padding before the image.
#pragma once

#include "kernels/base/types.h"

namespace dpt {

/// Returns the number of pixels after the input that the last window of an axis covers. Negative if
/// the window ends before the end of the input.
constexpr std::int64_t end_padding(std::int64_t in, std::int64_t out, std::int64_t kernel,
                                   std::int64_t stride, std::int64_t dilation,
                                   std::int64_t padding) {
  return (out - 1) * stride + (kernel - 1) * dilation + 1 - in - padding;
}

/// Returns the end padding of a convolution with the output `out`, before any fused pooling.
template <class Conv>
constexpr Size2 end_padding(const Conv& c, const SampleShape& out) {
  return {end_padding(c.in.h, out.h, c.kernel.h, c.stride.h, c.dilation.h, c.padding.h),
          end_padding(c.in.w, out.w, c.kernel.w, c.stride.w, c.dilation.w, c.padding.w)};
}

/// Returns true if no window extends beyond the end of the image by more than `padding`.
template <class Conv>
constexpr bool pads_evenly(const Conv& c, const SampleShape& out) {
  const Size2 end = end_padding(c, out);
  return end.h <= c.padding.h && end.w <= c.padding.w;
}

}  // namespace dpt
