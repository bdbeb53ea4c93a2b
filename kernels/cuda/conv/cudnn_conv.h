// Properties of cuDNN's plans that are known without running them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "kernels/cuda/conv/conv_plan.h"

namespace dpt {

struct CudnnPlanFacts {
  std::string name;
  bool tensor_cores = false;
  std::size_t workspace_bytes = 0;  ///< memory that running it needs, in the context's workspace
};

/// Returns the plans that make_cudnn_plans would create on the GPU that `gpu` describes. The GPU
/// need not exist. The description has cuDNN's own format
/// (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, cuDNN 9.8 or later). Needs the library, but no GPU.
std::vector<CudnnPlanFacts> describe_cudnn_plans(const std::string& gpu, const ConvProblem& problem,
                                                 std::size_t workspace_bytes, int most);

/// Returns true if make_cudnn_plan would find the plan of this name on the described GPU.
bool cudnn_has_plan(const std::string& gpu, const ConvProblem& problem, std::size_t workspace_bytes,
                    const std::string& name);

}  // namespace dpt
