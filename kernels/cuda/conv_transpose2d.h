#pragma once

#include <memory>

#include "kernels/backend.h"
#include "kernels/cuda/runtime/context.h"

namespace dpt {

/// As Backend::conv_transpose2d. The context must outlive it.
std::unique_ptr<Op> make_cuda_conv_transpose2d(const CudaContext& context,
                                               const ConvTranspose2dDesc& desc);

}  // namespace dpt
