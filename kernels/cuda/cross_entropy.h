#pragma once

#include <memory>

#include "kernels/backend.h"
#include "kernels/cuda/runtime/context.h"

namespace dpt {

/// As Backend::cross_entropy. The context must outlive it.
std::unique_ptr<LossOp> make_cuda_cross_entropy(const CudaContext& context,
                                                const CrossEntropyDesc& desc);

}  // namespace dpt
