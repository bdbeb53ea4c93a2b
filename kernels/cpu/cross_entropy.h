// Softmax, cross-entropy, its gradient and the step's counts on the CPU.
#pragma once

#include <memory>

#include "kernels/backend.h"

namespace dpt {

std::unique_ptr<LossOp> make_cpu_cross_entropy(const CrossEntropyDesc& desc);

}  // namespace dpt
