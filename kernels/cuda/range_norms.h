// The 2-norms of ranges of a flat buffer on a GPU. All work is queued on the context's stream.
#pragma once

#include <memory>
#include <span>

#include "kernels/backend.h"
#include "kernels/cuda/runtime/context.h"

namespace dpt {

/// `queue` is the backend of the context, for memory.
std::unique_ptr<RangeNormsOp> make_cuda_range_norms(DeviceQueue& queue, const CudaContext& context,
                                                    std::span<const Range> ranges);

}  // namespace dpt
