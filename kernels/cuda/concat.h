#pragma once

#include <memory>

#include "kernels/backend.h"
#include "kernels/cuda/runtime/context.h"

namespace dpt {

/// As Backend::concat. The context must outlive it.
std::unique_ptr<Op> make_cuda_concat(const CudaContext& context, const ConcatDesc& desc);

}  // namespace dpt
