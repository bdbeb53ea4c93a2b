// Our own CPU kernels for the shapes where they beat the library: one thread, fp32, chosen by the
// processor's features when the kernel is made. Each maker returns null where its kernels do not
// apply or are known to be slower; the caller then asks the library.
#pragma once

#include <memory>

#include "kernels/backend.h"
#include "kernels/cpu/features.h"

namespace dpt {

std::unique_ptr<Op> make_direct_conv2d(const Conv2dDesc& desc, const CpuFeatures& features);
std::unique_ptr<Op> make_direct_linear(const LinearDesc& desc, const CpuFeatures& features);
std::unique_ptr<Op> make_direct_pool2d(const Pool2dDesc& desc, const CpuFeatures& features);

}  // namespace dpt
