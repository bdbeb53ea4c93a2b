// Descriptions of operations without parameters that work on elements or on whole pixels.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/base/types.h"
#include "kernels/common/activations.h"

namespace dpt {

/// y = max(x, 0).
struct ReluDesc {
  std::int64_t batch = 0;
  SampleShape shape;
  DType type = DType::f32;
  bool training = true;
};

/// Activation as computed by the torch.nn layer with the name of the formula.
struct ActivationDesc {
  activations::Formula formula;
  std::int64_t batch = 0;
  SampleShape shape;
  DType type = DType::f32;
  bool training = true;
};

/// Dropout as torch.nn.Dropout and Dropout2d. In training, each element (or each channel of a
/// sample) is set to 0 with probability p, and the others are multiplied by 1 / (1 - p). Otherwise
/// y = x. The draws are a function of seed, stream, OpArgs::step, OpArgs::ids and the position in
/// the sample: see kernels/common/dropout.h.
struct DropoutDesc {
  std::int64_t batch = 0;
  SampleShape shape;
  double p = 0.5;         ///< from 0 to below 1
  bool channels = false;  ///< true: drops whole channels
  DType type = DType::f32;
  bool training = true;
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;  ///< identifies the layer
};

/// y = the sum of all inputs, in their order, then optional ReLU. All inputs have the same shape
/// and share one gradient, dx.
struct SumDesc {
  std::int64_t batch = 0;
  SampleShape shape;
  int inputs = 2;  ///< 2 to kMaxInputs
  bool relu = false;
  DType type = DType::f32;
  bool training = true;
};

/// y has the channels of all inputs, in their order. All inputs have the same height and width.
/// Each input has a separate gradient.
struct ConcatDesc {
  std::int64_t batch = 0;
  std::vector<SampleShape> in;  ///< 2 to kMaxInputs
  /// True if y is flat (1x1 pixels) and inputs may have any size. y then holds the elements of the
  /// inputs one after another, each input in the order (C,H,W).
  bool flatten = false;
  SampleShape out;
  DType type = DType::f32;
};

/// y = a * b, elementwise. If one of the two has 1x1 pixels, each of its channels multiplies all
/// pixels of that channel in the other. Each of the two has a separate gradient.
struct ProductDesc {
  std::int64_t batch = 0;
  std::array<SampleShape, 2> in;
  SampleShape out;
  DType type = DType::f32;
};

/// y repeats and moves the pixels of x: pixel (p, q) of y is pixel (floor((p - before.h) /
/// scale.h), floor((q - before.w) / scale.w)) of x, or 0 outside x.
struct PixelMapDesc {
  std::int64_t batch = 0;
  SampleShape in, out;
  Size2 scale{1, 1}, before{0, 0};
  DType type = DType::f32;
};

// clang-format off
/// List of the operations that this file describes, for DPT_OPS (kernels/ops.h).
#define DPT_ELEMENT_OPS(EACH) \
  EACH(ReluDesc) EACH(ActivationDesc) EACH(DropoutDesc) EACH(SumDesc) \
  EACH(ConcatDesc) EACH(ProductDesc) EACH(PixelMapDesc)
// clang-format on

}  // namespace dpt
