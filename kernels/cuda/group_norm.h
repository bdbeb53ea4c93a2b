#pragma once

#include <memory>

#include "kernels/backend.h"
#include "kernels/cuda/runtime/context.h"

namespace dpt {

/// As Backend::group_norm. The context must outlive it.
std::unique_ptr<Op> make_cuda_group_norm(const CudaContext& context, const GroupNormDesc& desc);

}  // namespace dpt
