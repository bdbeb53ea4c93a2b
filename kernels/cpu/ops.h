// The CPU operations: an overload of make_cpu_op for each description in DPT_OPS, defined in the
// source file named after the operation.
#pragma once

#include <memory>

#include "kernels/base/cpu_features.h"
#include "kernels/ops.h"

namespace dpt {

/// Processor for which operations are made.
struct CpuTarget {
  int threads = 1;       ///< threads of the replica's team
  CpuFeatures features;  ///< instructions that kernels may use
};

#define DPT_DECLARE(Desc) \
  std::unique_ptr<Op> make_cpu_op(const Desc& desc, const CpuTarget& target);
DPT_OPS(DPT_DECLARE)
#undef DPT_DECLARE

std::unique_ptr<LossOp> make_cpu_loss_op(const CrossEntropyDesc& desc);
std::unique_ptr<LossOp> make_cpu_loss_op(const ElementLossDesc& desc);

/// Creates the input kernel for batches of desc.batch on a team of `threads`. Throws
/// ErrorKind::device if it cannot run the description. The result depends neither on the number of
/// threads nor on the partition of a batch.
std::unique_ptr<InputOp> make_cpu_input(const InputDesc& desc, int threads);

}  // namespace dpt
