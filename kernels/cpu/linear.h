// Linear layers on the CPU.
#pragma once

#include <memory>

#include "kernels/backend.h"

namespace dpt {

/// y = x W^T + b (+ ReLU): a direct kernel where one applies, else oneDNN.
std::unique_ptr<Op> make_cpu_linear(const LinearDesc& desc, int threads);

}  // namespace dpt
