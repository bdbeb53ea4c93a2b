// The convolution that underlies a transposed convolution.
#pragma once

#include "kernels/conv_descs.h"

namespace dpt {

/// Returns the convolution from images of y's shape to images of x's shape with the same weight.
/// Its backward_data pass computes y from x, without the bias. Training of the transposed
/// convolution uses all three passes of this convolution.
inline Conv2dDesc transposed_convolution(const ConvTranspose2dDesc& d) {
  Conv2dDesc conv;
  conv.batch = d.batch;
  conv.in = d.out;
  conv.conv_out = conv.out = d.in;
  conv.kernel = d.kernel;
  conv.stride = d.stride;
  conv.padding = d.padding;
  conv.dilation = d.dilation;
  conv.groups = d.groups;
  conv.bias = false;
  conv.type = d.type;
  conv.tf32 = d.tf32;
  return conv;
}

}  // namespace dpt
