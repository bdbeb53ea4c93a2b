// 3x3 convolutions with stride 1 by Winograd's minimal filtering, which needs fewer multiplications
// than a direct sum. Used for the shapes for which this is faster than oneDNN and the direct
// kernels.
#pragma once

#include <memory>

#include "kernels/backend.h"
#include "kernels/base/cpu_features.h"
#include "kernels/cpu/own_conv2d.h"

namespace dpt {

/// Creates the convolution, or returns null if the kernels do not apply; the caller then uses
/// other kernels.
std::unique_ptr<Op> make_winograd_conv2d(const Conv2dDesc& desc, const CpuTarget& target,
                                         Prefer prefer = Prefer::fastest);

}  // namespace dpt
