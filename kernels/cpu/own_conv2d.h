// Convolutions with dpt's kernels. direct_conv2d.h and winograd_conv2d.h decide which descriptions
// their kernels accept, and create the operation.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/backend.h"
#include "kernels/cpu/simd/conv_table.h"

namespace dpt {

/// Choice for a description that dpt's kernels can compute: use them only if they are faster than
/// oneDNN, or always.
enum class Prefer : std::uint8_t { fastest, ours };

/// Returns the parameters of `desc` for the kernels. REQUIRES: a pool is 2x2 with stride 2.
direct::Conv conv_of(const Conv2dDesc& desc);

/// Creates the convolution `desc` from the kernels for its type. Its samples are divided among
/// `threads` threads. Returns null if there are no such kernels (a null pointer). REQUIRES: the
/// kernels can compute `desc`.
std::unique_ptr<Op> make_own_conv2d(const Conv2dDesc& desc, const direct::ConvKernels<float>* fp32,
                                    const direct::ConvKernels<Bf16>* bf16, int threads);

}  // namespace dpt
