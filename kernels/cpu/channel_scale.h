// Activations times a learned factor for each channel, on the CPU.
#pragma once

#include <memory>

#include "kernels/backend.h"

namespace dpt {

std::unique_ptr<Op> make_cpu_channel_scale(const ChannelScaleDesc& desc, int threads);

}  // namespace dpt
