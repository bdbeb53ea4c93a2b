// A convolution by kernels of our own. direct_conv2d.h and winograd_conv2d.h say which descriptions
// their kernels take and make the operation.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/backend.h"
#include "kernels/cpu/simd/conv_table.h"

namespace dpt {

/// Choice for a description that our kernels could compute: only where they beat the library, or
/// always.
enum class Prefer : std::uint8_t { fastest, ours };

/// Makes the convolution `desc` of kernels that can compute it, for one thread.
std::unique_ptr<Op> make_own_conv2d(const Conv2dDesc& desc, const direct::ConvKernels& kernels);

}  // namespace dpt
