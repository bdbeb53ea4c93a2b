// The convolution that a transposed convolution is the transpose of.
#pragma once

#include "kernels/conv_descs.h"

namespace dpt {

/// From images of y's shape to images of x's, with the same weight: its gradient of the data,
/// given x, is y without the bias. What training does with it is done with all three of its passes.
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
