// Resizing with ONNX operations that gives Pillow's pixels, bit for bit. It is the counterpart of
// kernels/image/resize.cpp. The Resize operation of ONNX computes its weights in float32, and
// therefore rounds one pixel in two hundred differently.
#pragma once

#include <string>

#include "engine/layers/op_writer.h"

namespace dpt {

/// Height and width in a graph: values of the type int64 and the shape (1).
struct GraphSize {
  std::string height, width;
};

/// Writes operations that resize `pixels` from the size `from` to the size `to`. Returns their
/// result.
/// - `pixels`: float32 (N, channels, height, width) of integers from 0 to 255.
/// - `interpolation`: "nearest", "bilinear" or "bicubic", the latter two antialiased.
/// - Result: float32 (N, channels, height, width) of integers from 0 to 255.
std::string write_resize(OpWriter& writer, const std::string& pixels, const GraphSize& from,
                         const GraphSize& to, const std::string& interpolation);

}  // namespace dpt
