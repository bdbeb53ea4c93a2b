// Repeated and padded pixels, on the CPU.
#pragma once

#include <memory>

#include "kernels/backend.h"

namespace dpt {

std::unique_ptr<Op> make_cpu_pixel_map(const PixelMapDesc& desc, int threads);

}  // namespace dpt
