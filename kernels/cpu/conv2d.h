// Convolution on the CPU, with the bias, ReLU and pooling that are fused after it.
#pragma once

#include <memory>

#include "kernels/backend.h"

namespace dpt {

/// A direct kernel for the whole description where one applies, else oneDNN's convolution and our
/// own pooling after it.
std::unique_ptr<Op> make_cpu_conv2d(const Conv2dDesc& desc, int threads);

}  // namespace dpt
