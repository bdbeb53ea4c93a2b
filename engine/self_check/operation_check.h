// Comparison of one operation's kernels with the double-precision reference, on the device at hand.
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
  /// Kernel that computed the wrong result, if others could replace it (OpFactory::avoid); else
  /// empty.
  std::string replaceable_kernel;
  std::uint64_t bits = 0;  ///< hash of the results of all variants
};

/// Runs an operation forward and backward on random inputs and compares the output and all
/// gradients with those of kernels/reference. Then runs it again: the results must have the same
/// bits if `exact`, and otherwise agree with the reference, too. Then adds the gradients of the
/// parameters to themselves, and runs the variants that the operation has (RunVariant).
///
/// Two samples of the batch have values, its first and its last; batch norm has at least 16 values
/// for each statistic. To save a CPU's time, large operations have one sample, and add no
/// gradients. The other samples are zero: on a GPU with enough free memory, convolutions and linear
/// layers run with the whole batch, on a CPU with the smallest batch that has the same kernels. To
/// keep the reference fast, the inputs of large matrix products are mostly zeros (about 4 million
/// multiply-adds remain), and in place of a linear layer with more than 2 million weights, one with
/// fewer outputs is checked. Inputs and parameters are numbers that bf16 can represent, so that
/// products, and sums up to about 4, are exact in fp32. The bound is relative to the
/// largest expected value; it is wider where large terms cancel.
OperationCheck check_operation(Backend& backend, const OpDesc& desc, bool exact);

}  // namespace dpt
