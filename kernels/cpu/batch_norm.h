// Batch normalisation on the CPU.
#pragma once

#include <memory>
#include <span>

#include "kernels/backend.h"

namespace dpt {

// Implementations of FlatKernels.
void cpu_merge_moments(std::span<const DevPtr> parts, std::span<const MomentMerge> merges,
                       std::span<const DevPtr> outs, std::int64_t channels);
void cpu_check_running(std::span<const RunningRange> ranges, const RunningArgs& args);
void cpu_update_running(std::span<const RunningRange> ranges, Range counters,
                        const RunningArgs& args);
void cpu_fold_norms(std::span<const NormFold> folds, DevPtr params, DevPtr folded);

}  // namespace dpt
