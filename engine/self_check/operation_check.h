// Comparison of one operation's kernels on the present device with the double-precision reference.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/backend.h"

namespace dpt {

/// Result of a check.
struct OperationCheck {
  std::string operation;       ///< operation_text
  std::string implementation;  ///< Op::implementation
  /// Disagreement, with both values and the bound; empty if there is none.
  std::string problem;
  /// Kernel that computed the wrong result, if others can replace it (OpFactory::avoid); otherwise
  /// empty.
  std::string replaceable_kernel;
  std::uint64_t bits = 0;  ///< hash of the results of all variants
};

/// Runs an operation forward and backward on random inputs and compares the output and all
/// gradients with those of kernels/reference. Then runs it again: the results must have the same
/// bits if `exact`, and otherwise agree with the reference, too. Then adds the gradients of the
/// parameters to themselves, and runs the other variants that the operation has (RunVariant).
///
/// Only two samples of the batch have values, the first and the last. Batch norm has more, if it
/// needs them for at least 16 values per statistic. To save a CPU's time, large operations have one
/// sample, and add no gradients. All other samples are zero. Convolutions and linear layers run
/// with the whole batch on a GPU with enough free memory, and on a CPU with the smallest batch that
/// has the same kernels.
///
/// To keep the reference fast, the inputs of large matrix products are mostly zeros (about 4
/// million multiply-adds remain). In place of a linear layer with more than 2 million weights, one
/// with fewer outputs is checked. Inputs and parameters are numbers that bf16 can represent, so
/// that products, and sums up to about 4, are exact in fp32. The bound is relative to the largest
/// expected value. It is wider where large terms cancel.
OperationCheck check_operation(Backend& backend, const OpDesc& desc, bool exact);

}  // namespace dpt
