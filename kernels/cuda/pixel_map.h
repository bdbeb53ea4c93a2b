#pragma once

#include <memory>

#include "kernels/backend.h"
#include "kernels/cuda/runtime/context.h"

namespace dpt {

/// As Backend::pixel_map. The context must outlive it.
std::unique_ptr<Op> make_cuda_pixel_map(const CudaContext& context, const PixelMapDesc& desc);

}  // namespace dpt
