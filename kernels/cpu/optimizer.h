// Optimizers on a CPU: the loops over flat buffers for every formula. The results have the same
// bits on every instruction set. The CPU backend calls them from its thread.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/backend.h"

namespace dpt {

std::unique_ptr<OptimizerOp> make_cpu_optimizer(const OptimizerDesc& desc);

}  // namespace dpt
