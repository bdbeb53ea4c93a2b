// Linear layers by kernels of our own: one thread, fp32.
#pragma once

#include <memory>

#include "kernels/backend.h"
#include "kernels/base/cpu_features.h"

namespace dpt {

/// Returns null where the kernels do not apply; the caller then asks the library.
std::unique_ptr<Op> make_direct_linear(const LinearDesc& desc, const CpuFeatures& features);

}  // namespace dpt
