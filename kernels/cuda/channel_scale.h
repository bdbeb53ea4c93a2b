#pragma once

#include <memory>

#include "kernels/backend.h"
#include "kernels/cuda/runtime/context.h"

namespace dpt {

/// As Backend::channel_scale. The context must outlive it.
std::unique_ptr<Op> make_cuda_channel_scale(const CudaContext& context,
                                            const ChannelScaleDesc& desc);

}  // namespace dpt
