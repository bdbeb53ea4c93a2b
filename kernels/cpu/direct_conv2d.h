// Direct convolutions with optional fused 2x2 pooling: in bf16, and in fp32 for the shapes for
// which they are faster than oneDNN.
#pragma once

#include <memory>

#include "kernels/backend.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/own_conv2d.h"

namespace dpt {

/// Creates the convolution, or returns null if the kernels do not apply; the caller then uses
/// oneDNN.
std::unique_ptr<Op> make_direct_conv2d(const Conv2dDesc& desc, const CpuTarget& target,
                                       Prefer prefer = Prefer::fastest);

}  // namespace dpt
