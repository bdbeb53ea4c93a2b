// The 2-norms of ranges of a flat buffer on a GPU. All work is queued on the context's stream.
#pragma once

#include <memory>
#include <span>

#include "kernels/backend.h"
#include "kernels/cuda/runtime/context.h"

namespace dpt {

/// Creates the operation. `queue` is the context's backend, which provides memory.
std::unique_ptr<RangeNormsOp> make_cuda_range_norms(DeviceQueue& queue, const CudaContext& context,
                                                    std::span<const Range> ranges);

}  // namespace dpt
