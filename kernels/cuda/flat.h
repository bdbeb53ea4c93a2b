// Kernels over flat fp32 buffers on a GPU: sums, norm, rounding to bf16. All work is queued on the
// context's stream.
#pragma once

#include "kernels/backend.h"
#include "kernels/cuda/runtime/context.h"

namespace dpt {

/// Implementations of the Backend functions that have these names without `cuda_`.
void cuda_add(const CudaContext& context, DevPtr to, DevPtr a, DevPtr b, std::int64_t count);
void cuda_tree_sum(const CudaContext& context, std::span<const DevPtr> parts,
                   std::span<const TreeAdd> additions, std::span<const DevPtr> outs,
                   std::int64_t count);
void cuda_to_bf16(const CudaContext& context, DevPtr to, DevPtr from, std::int64_t count);
void cuda_divide_by_weight(const CudaContext& context, DevPtr grads, std::int64_t count,
                           DevPtr metrics);
void cuda_clip_values(const CudaContext& context, DevPtr values, float limit, std::int64_t count);
void cuda_grad_norm(const CudaContext& context, DevPtr grads, std::int64_t count, DevPtr scalars);

}  // namespace dpt
