// Execution plans whose kernels cuDNN compiles at run time, for GPUs that are only described to it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/conv/conv_plan.h"

namespace dpt::testing {

struct CompiledPlan {
  std::int64_t engine = 0;
  std::string json;  ///< CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, with the machine code
};

/// Returns the plans for a convolution that cuDNN compiles at run time: the first plan of each
/// engine with such plans. Needs the driver's library or libcuda_stand_in; with neither, cuDNN has
/// no such engine.
std::vector<CompiledPlan> compiled_plans(const std::string& gpu, const ConvProblem& problem);

/// Returns the plans that cuDNN compiles for a bf16 convolution that also computes the sums and the
/// sums of squares of its output (genStats). The kernels of these plans add up the sums with float
/// atomics.
std::vector<CompiledPlan> compiled_plans_with_atomics(const std::string& gpu);

}  // namespace dpt::testing
