// Max and average pooling on the CPU, as torch.nn.MaxPool2d and AvgPool2d define them.
#pragma once

#include <memory>

#include "kernels/backend.h"

namespace dpt {

/// The fastest pooling for the description: a direct kernel where one applies, else plain loops
/// over NHWC. Max pooling keeps in `saved` which element of each window was the largest.
std::unique_ptr<Op> make_cpu_pool2d(const Pool2dDesc& desc, int threads);

}  // namespace dpt
