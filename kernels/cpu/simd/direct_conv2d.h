// Direct convolutions for the shapes where they beat the library: one thread, fp32, with 2x2
// pooling fused.
#pragma once

#include <memory>

#include "kernels/backend.h"
#include "kernels/base/cpu_features.h"
#include "kernels/cpu/simd/own_conv2d.h"

namespace dpt {

/// Returns null where the kernels do not apply; the caller then asks the library.
std::unique_ptr<Op> make_direct_conv2d(const Conv2dDesc& desc, const CpuFeatures& features,
                                       Prefer prefer = Prefer::fastest);

}  // namespace dpt
