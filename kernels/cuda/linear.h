#pragma once

#include <memory>

#include "kernels/backend.h"
#include "kernels/cuda/runtime/context.h"

namespace dpt {

/// As Backend::linear. The context must outlive it.
std::unique_ptr<Op> make_cuda_linear(const CudaContext& context, const LinearDesc& desc);

}  // namespace dpt
