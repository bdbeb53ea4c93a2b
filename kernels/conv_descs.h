// Descriptions of convolutions, linear layers and pooling.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/base/types.h"
#include "kernels/op.h"

namespace dpt {

enum class PoolKind : std::uint8_t { max, average };

/// Pooling as defined by torch.nn.MaxPool2d and AvgPool2d. The output size is given, so that only
/// one place (the layer's shape inference) handles ceil_mode.
struct Pool2dDesc {
  PoolKind kind = PoolKind::max;
  Size2 kernel{2, 2}, stride{2, 2}, padding{0, 0}, dilation{1, 1};
  /// For average pooling: true if the divisor counts padding. The part of a ceil_mode window beyond
  /// the padding never counts.
  bool count_include_pad = true;
  std::int64_t divisor_override = 0;  ///< average only: divisor of every window; 0 = none
  /// For average pooling: replaces the fixed windows by windows that divide the input as evenly as
  /// possible. Output o averages the inputs from floor(o * in / out) to ceil((o + 1) * in / out),
  /// as in torch.nn.AdaptiveAvgPool2d.
  bool adaptive = false;
  DType type = DType::f32;
  std::int64_t batch = 0;
  SampleShape in, out;
  bool training = true;        ///< false: forward only
  bool input_gradient = true;  ///< false: dx is never requested
};

/// Convolution with optional bias, then optional ReLU, then optional pooling (applied in that
/// order). The weight has the description's type. `conv_out` is the shape after the convolution.
/// `out` is the shape after the pooling; without a pool, it equals conv_out. `padding` is the
/// padding before the image; the padding after it follows from conv_out
/// (kernels/common/conv_padding.h). The pool's batch, type, in, out and training fields agree with
/// this description.
struct Conv2dDesc : WeightAndBias {
  std::int64_t batch = 0;
  SampleShape in, conv_out, out;
  Size2 kernel, stride{1, 1}, padding{0, 0}, dilation{1, 1};
  std::int64_t groups = 1;
  bool bias = true;
  bool relu = false;
  std::optional<Pool2dDesc> pool;
  DType type = DType::f32;
  bool tf32 = false;  ///< operands may be rounded to tf32 (10-bit mantissa); f32 only
  bool training = true;
  bool input_gradient = true;  ///< false for the first layer: dx is never requested
};

/// Transposed convolution with an optional bias (torch.nn.ConvTranspose2d): the transpose of a
/// convolution from images of y's shape to images of x's shape. Each pixel of x adds its channels,
/// multiplied by the weight (in.c, kernel, out.c / groups), to a window of y. Kernel, stride,
/// padding, dilation and groups belong to the underlying convolution
/// (kernels/common/conv_transpose.h).
struct ConvTranspose2dDesc : WeightAndBias {
  std::int64_t batch = 0;
  SampleShape in, out;
  Size2 kernel, stride{1, 1}, padding{0, 0}, dilation{1, 1};
  std::int64_t groups = 1;
  bool bias = true;
  DType type = DType::f32;
  bool tf32 = false;  ///< see Conv2dDesc
  bool training = true;
  bool input_gradient = true;
};

/// y = x W^T + b over rows, then optional ReLU. x (batch, in), W (out, in) in the description's
/// type, y (batch, out).
struct LinearDesc : WeightAndBias {
  std::int64_t batch = 0, in = 0, out = 0;
  bool bias = true;
  bool relu = false;
  DType type = DType::f32;
  bool tf32 = false;  ///< see Conv2dDesc
  bool training = true;
  bool input_gradient = true;
};

/// List of the operations that this file describes, for DPT_OPS (kernels/ops.h).
#define DPT_CONV_OPS(EACH) \
  EACH(Conv2dDesc) EACH(ConvTranspose2dDesc) EACH(LinearDesc) EACH(Pool2dDesc)

}  // namespace dpt
