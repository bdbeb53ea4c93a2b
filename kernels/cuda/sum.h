#pragma once

#include <memory>

#include "kernels/backend.h"
#include "kernels/cuda/runtime/context.h"

namespace dpt {

/// As Backend::sum. The context must outlive it.
std::unique_ptr<Op> make_cuda_sum(const CudaContext& context, const SumDesc& desc);

}  // namespace dpt
