// Elementwise sum of activations on the CPU.
#pragma once

#include <memory>

#include "kernels/backend.h"

namespace dpt {

std::unique_ptr<Op> make_cpu_sum(const SumDesc& desc, int threads);

}  // namespace dpt
