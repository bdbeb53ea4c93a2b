#pragma once

#include <memory>
#include <span>

#include "kernels/backend.h"
#include "kernels/cuda/runtime/context.h"

namespace dpt {

// Implementations of FlatKernels.
void cuda_merge_moments(const CudaContext& context, std::span<const DevPtr> parts,
                        std::span<const MomentMerge> merges, std::span<const DevPtr> outs,
                        std::int64_t channels);
void cuda_check_running(const CudaContext& context, std::span<const RunningRange> ranges,
                        const RunningArgs& args);
void cuda_update_running(const CudaContext& context, std::span<const RunningRange> ranges,
                         Range counters, const RunningArgs& args);
void cuda_fold_norms(const CudaContext& context, std::span<const NormFold> folds, DevPtr params,
                     DevPtr folded);

}  // namespace dpt
