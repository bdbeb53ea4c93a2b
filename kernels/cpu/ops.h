// The CPU operations: an overload for each description, defined in the source file of the same
// name.
#pragma once

#include <memory>

#include "kernels/ops.h"

namespace dpt {

std::unique_ptr<Op> make_cpu_op(const Conv2dDesc& desc, int threads);
std::unique_ptr<Op> make_cpu_op(const ConvTranspose2dDesc& desc, int threads);
std::unique_ptr<Op> make_cpu_op(const LinearDesc& desc, int threads);
std::unique_ptr<Op> make_cpu_op(const Pool2dDesc& desc, int threads);
std::unique_ptr<Op> make_cpu_op(const ReluDesc& desc, int threads);
std::unique_ptr<Op> make_cpu_op(const ActivationDesc& desc, int threads);
std::unique_ptr<Op> make_cpu_op(const DropoutDesc& desc, int threads);
std::unique_ptr<Op> make_cpu_op(const SumDesc& desc, int threads);
std::unique_ptr<Op> make_cpu_op(const BatchNormDesc& desc, int threads);
std::unique_ptr<Op> make_cpu_op(const ConcatDesc& desc, int threads);
std::unique_ptr<Op> make_cpu_op(const ProductDesc& desc, int threads);
std::unique_ptr<Op> make_cpu_op(const PixelMapDesc& desc, int threads);
std::unique_ptr<Op> make_cpu_op(const GroupNormDesc& desc, int threads);
std::unique_ptr<Op> make_cpu_op(const ChannelScaleDesc& desc, int threads);

std::unique_ptr<LossOp> make_cpu_loss_op(const CrossEntropyDesc& desc);
std::unique_ptr<LossOp> make_cpu_loss_op(const ElementLossDesc& desc);

/// Creates the input kernel for batches of desc.batch on a team of `threads`. Throws
/// ErrorKind::device if it cannot run the description. The result depends neither on the number of
/// threads nor on the partition of a batch.
std::unique_ptr<InputOp> make_cpu_input(const InputDesc& desc, int threads);

}  // namespace dpt
