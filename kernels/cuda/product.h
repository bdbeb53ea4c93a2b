#pragma once

#include <memory>

#include "kernels/backend.h"
#include "kernels/cuda/runtime/context.h"

namespace dpt {

/// As Backend::product. The context must outlive it.
std::unique_ptr<Op> make_cuda_product(const CudaContext& context, const ProductDesc& desc);

}  // namespace dpt
