#pragma once

#include <memory>

#include "kernels/backend.h"
#include "kernels/cuda/runtime/context.h"

namespace dpt {

/// As Backend::dropout. The context must outlive it.
std::unique_ptr<Op> make_cuda_dropout(const CudaContext& context, const DropoutDesc& desc);

}  // namespace dpt
