// The channels of several activations side by side, on the CPU.
#pragma once

#include <memory>

#include "kernels/backend.h"

namespace dpt {

std::unique_ptr<Op> make_cpu_concat(const ConcatDesc& desc, int threads);

}  // namespace dpt
