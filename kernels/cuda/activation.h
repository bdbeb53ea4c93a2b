#pragma once

#include <memory>

#include "kernels/backend.h"
#include "kernels/cuda/runtime/context.h"

namespace dpt {

/// As Backend::activation. The context must outlive it.
std::unique_ptr<Op> make_cuda_activation(const CudaContext& context, const ActivationDesc& desc);

}  // namespace dpt
