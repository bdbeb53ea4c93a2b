// The operations of an NVIDIA GPU: an overload of make_cuda_op for each description in DPT_OPS,
// defined in the source file named after the operation. The context must outlive the operations.
#pragma once

#include <memory>

#include "kernels/cuda/runtime/context.h"
#include "kernels/ops.h"

namespace dpt {

#define DPT_DECLARE(Desc) \
  std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const Desc& desc);
DPT_OPS(DPT_DECLARE)
#undef DPT_DECLARE

/// Creates a pooling operation that follows a ReLU. The caller computes that ReLU in the preceding
/// operation; the backward pass here returns the gradient before it.
std::unique_ptr<Op> make_cuda_pool_after_relu(const CudaContext& context, const Pool2dDesc& desc);

std::unique_ptr<LossOp> make_cuda_loss_op(const CudaContext& context, const CrossEntropyDesc& desc);
std::unique_ptr<LossOp> make_cuda_loss_op(const CudaContext& context, const ElementLossDesc& desc);

std::unique_ptr<InputOp> make_cuda_input(const CudaContext& context, const InputDesc& desc);

}  // namespace dpt
