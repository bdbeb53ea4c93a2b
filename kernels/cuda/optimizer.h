// Optimizers on a GPU. All work is queued on the context's stream.
#pragma once

#include <memory>

#include "kernels/backend.h"
#include "kernels/cuda/runtime/context.h"

namespace dpt {

/// Creates the optimizer. `queue` is the context's backend, which provides memory.
std::unique_ptr<OptimizerOp> make_cuda_optimizer(DeviceQueue& queue, const CudaContext& context,
                                                 const OptimizerDesc& desc);

}  // namespace dpt
