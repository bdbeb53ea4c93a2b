#pragma once

#include <memory>

#include "kernels/backend.h"
#include "kernels/cuda/runtime/context.h"

namespace dpt {

/// As Backend::input. The context must outlive it.
std::unique_ptr<InputOp> make_cuda_input(const CudaContext& context, const InputDesc& desc);

}  // namespace dpt
