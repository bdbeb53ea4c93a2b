#include "engine/layers/shape_checks.h"

#include <fmt/format.h>

namespace dpt {

std::string text_of(const Size2& size) {
  return fmt::format("{}x{}", size.h, size.w);
}

std::string short_text_of(const Size2& size) {
  return size.h == size.w ? fmt::format("{}", size.h) : text_of(size);
}

void require_image(const ActivationShape& in) {
  if (!in.flat) return;
  fail(ErrorKind::usage,
       "expected an image (C x H x W) as input, found a vector of {} features: this layer comes "
       "after a Flatten or Linear; move it before the Flatten",
       in.elements());
}

void require_fit(const ActivationShape& in, const Size2& kernel, const Size2& padding,
                 const Size2& dilation) {
  const Size2 needed{extent(kernel.h, dilation.h), extent(kernel.w, dilation.w)};
  const Size2 padded{in.shape.h + 2 * padding.h, in.shape.w + 2 * padding.w};
  if (needed.h <= padded.h && needed.w <= padded.w) return;
  std::string how;
  if (padding != Size2{0, 0}) how += fmt::format(" with padding {}", text_of(padding));
  if (dilation != Size2{1, 1}) how += fmt::format(" with dilation {}", text_of(dilation));
  fail(ErrorKind::usage,
       "kernel_size {} does not fit its input of {} (C x H x W){}: it covers {} pixels and the "
       "padded input has {}; make the kernel smaller, add padding, or downsample less before it",
       text_of(kernel), in.text(), how, text_of(needed), text_of(padded));
}

}  // namespace dpt
