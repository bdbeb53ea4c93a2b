// Our own CPU kernels for the shapes where they beat the library: one thread, fp32, chosen by the
// processor's features when the kernel is made. Each maker returns null where its kernels do not
// apply; the caller then asks the library.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/backend.h"
#include "kernels/base/cpu_features.h"

namespace dpt {

/// Whether to leave a description to the library although our kernels could compute it.
enum class Prefer : std::uint8_t { fastest, ours };

std::unique_ptr<Op> make_direct_conv2d(const Conv2dDesc& desc, const CpuFeatures& features,
                                       Prefer prefer = Prefer::fastest);
/// 3x3 convolutions in fewer multiplications than a direct sum takes.
std::unique_ptr<Op> make_winograd_conv2d(const Conv2dDesc& desc, const CpuFeatures& features,
                                         Prefer prefer = Prefer::fastest);
std::unique_ptr<Op> make_direct_linear(const LinearDesc& desc, const CpuFeatures& features);

}  // namespace dpt
