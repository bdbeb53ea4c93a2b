#pragma once

#include <memory>

#include "kernels/backend.h"
#include "kernels/cuda/runtime/context.h"

namespace dpt {

/// As Backend::element_loss. The context must outlive it.
std::unique_ptr<LossOp> make_cuda_element_loss(const CudaContext& context,
                                               const ElementLossDesc& desc);

}  // namespace dpt
