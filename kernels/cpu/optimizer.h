// Optimizers on a CPU: the loops over flat buffers for every formula. They run in the CPU backend's
// thread, and their results have the same bits on every instruction set.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/backend.h"

namespace dpt {

std::unique_ptr<OptimizerOp> make_cpu_optimizer(const OptimizerDesc& desc);

}  // namespace dpt
