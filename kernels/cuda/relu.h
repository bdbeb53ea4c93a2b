#pragma once

#include <memory>

#include "kernels/backend.h"
#include "kernels/cuda/runtime/context.h"

namespace dpt {

/// As Backend::relu. The context must outlive it.
std::unique_ptr<Op> make_cuda_relu(const CudaContext& context, const ReluDesc& desc);

}  // namespace dpt
