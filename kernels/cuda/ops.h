// The operations of an NVIDIA GPU: an overload for each description, defined in the source file of
// the same name. The context must outlive the operations.
#pragma once

#include <memory>

#include "kernels/cuda/runtime/context.h"
#include "kernels/ops.h"

namespace dpt {

std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const Conv2dDesc& desc);
std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const ConvTranspose2dDesc& desc);
std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const LinearDesc& desc);
/// Creates a pooling. With `behind_relu`, x is the output of a ReLU that was fused, and backward
/// returns the gradient before that ReLU.
std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const Pool2dDesc& desc,
                                 bool behind_relu = false);
std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const ReluDesc& desc);
std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const ActivationDesc& desc);
std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const DropoutDesc& desc);
std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const SumDesc& desc);
std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const BatchNormDesc& desc);
std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const ConcatDesc& desc);
std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const ProductDesc& desc);
std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const PixelMapDesc& desc);
std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const GroupNormDesc& desc);
std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const ChannelScaleDesc& desc);

std::unique_ptr<LossOp> make_cuda_loss_op(const CudaContext& context, const CrossEntropyDesc& desc);
std::unique_ptr<LossOp> make_cuda_loss_op(const CudaContext& context, const ElementLossDesc& desc);

std::unique_ptr<InputOp> make_cuda_input(const CudaContext& context, const InputDesc& desc);

}  // namespace dpt
