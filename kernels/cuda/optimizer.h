// Optimizers on a GPU. All work is queued on the context's stream.
#pragma once

#include <memory>

#include "kernels/backend.h"
#include "kernels/cuda/runtime/context.h"

namespace dpt {

/// `queue` is the backend of the context, for memory.
std::unique_ptr<OptimizerOp> make_cuda_optimizer(DeviceQueue& queue, const CudaContext& context,
                                                 const OptimizerDesc& desc);

}  // namespace dpt
