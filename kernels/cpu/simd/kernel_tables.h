// Tables of this folder's kernels for a processor: for each kind of kernel, the one compiled for
// the widest instruction set that the processor has.
#pragma once

#include "kernels/base/cpu_features.h"

namespace dpt {

namespace batch_norm {
struct RowKernels;
}
struct Bf16;
namespace direct {
template <class Value>
struct ConvKernels;
struct LinearKernels;
}  // namespace direct
struct Bf16Loops;
struct FlatLoops;
struct FormulaLoops;

/// Tables of kernels. A table is null if no kernel of its kind is built for the processor.
struct KernelTables {
  const direct::ConvKernels<float>* direct_conv = nullptr;
  const direct::ConvKernels<float>* winograd = nullptr;
  const direct::LinearKernels* direct_linear = nullptr;
  const batch_norm::RowKernels* batch_norm = nullptr;
  const FlatLoops* flat = nullptr;
  const FormulaLoops* optimizers = nullptr;  ///< one per formula of OptimizerFormulas
  const direct::ConvKernels<Bf16>* direct_conv_bf16 = nullptr;
  const direct::ConvKernels<Bf16>* winograd_bf16 = nullptr;
  const batch_norm::RowKernels* batch_norm_bf16 = nullptr;
  const Bf16Loops* bf16 = nullptr;
};

/// Returns the tables for a processor with `features`. Only this function knows which tables are
/// built.
KernelTables kernel_tables(const CpuFeatures& features);

}  // namespace dpt
