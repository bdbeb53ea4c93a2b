#pragma once

#include <memory>

#include "kernels/backend.h"

namespace dpt {

/// As Backend::conv_transpose2d.
std::unique_ptr<Op> make_cpu_conv_transpose2d(const ConvTranspose2dDesc& desc, int threads);

}  // namespace dpt
