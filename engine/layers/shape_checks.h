// Helpers for the layers' shape inference: texts of sizes, and an error that lets the later layers
// be checked nevertheless.
#pragma once

#include <string>

#include "engine/layers/activation_shape.h"
#include "kernels/base/error.h"
#include "kernels/base/types.h"

namespace dpt {

/// A shape problem of a layer whose output shape is still known: for example, a Linear always gives
/// out_features. make_plan reports it and continues with `assumed`, so that one run reports several
/// mistakes.
class ShapeError : public Error {
 public:
  ShapeError(const std::string& text, const ActivationShape& assumed)
      : Error(ErrorKind::usage, text), assumed_(assumed) {}
  const ActivationShape& assumed() const noexcept { return assumed_; }

 private:
  ActivationShape assumed_;
};

/// Returns "3x5" (height x width).
std::string text_of(const Size2& size);
/// Returns "2" if height and width are equal, otherwise "2x3".
std::string short_text_of(const Size2& size);

/// Throws unless `in` is an image, not the vector after a Flatten or Linear.
void require_image(const ActivationShape& in);

/// Returns the number of pixels that a dilated kernel covers.
constexpr std::int64_t extent(std::int64_t kernel, std::int64_t dilation) {
  return dilation * (kernel - 1) + 1;
}

/// Throws unless a kernel fits into its padded input.
void require_fit(const ActivationShape& in, const Size2& kernel, const Size2& padding,
                 const Size2& dilation);

}  // namespace dpt
