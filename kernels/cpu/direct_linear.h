// Linear layers with dpt's direct kernels: one thread, fp32.
#pragma once

#include <memory>

#include "kernels/backend.h"
#include "kernels/base/cpu_features.h"

namespace dpt {

/// Creates the layer, or returns null if the kernels do not apply; the caller then uses oneDNN.
std::unique_ptr<Op> make_direct_linear(const LinearDesc& desc, const CpuFeatures& features);

}  // namespace dpt
