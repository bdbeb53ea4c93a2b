// Optimizers on a CPU: the loops over flat buffers for every formula. The results have the same
// bits on every instruction set. Called by the CPU backend from its own thread.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/backend.h"

namespace dpt {

std::unique_ptr<OptimizerOp> make_cpu_optimizer(const OptimizerDesc& desc);

/// Where a loop of an optimizer works: elements from 0 on, all in host memory.
struct OptimizerBuffers {
  float* params = nullptr;
  const float* grads = nullptr;
  float* states[kMostOptimizerStates] = {};
};

/// One pass of a formula over the first elements of `buffers`, as many as fit whole vectors;
/// returns how many of `count` those are. Sets `finite` to false when a value that it wrote is not
/// finite.
using UpdateLoop = std::int64_t (*)(const UpdateStep& step, float clip,
                                    const OptimizerBuffers& buffers, std::int64_t count,
                                    bool& finite);

}  // namespace dpt
