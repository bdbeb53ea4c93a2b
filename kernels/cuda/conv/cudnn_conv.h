// Properties of cuDNN's plans that are known without running them.
#pragma once

#include <string>
#include <vector>

#include "kernels/cuda/conv/conv_plan.h"

namespace dpt {

/// Returns the names of the plans that make_cudnn_plans would create on a GPU described by `GPU`,
/// which need not exist. The description is cuDNN's own (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
/// cuDNN 9.8 or later). Needs the library, but no GPU.
std::vector<std::string> cudnn_plan_names(const std::string& gpu, const ConvProblem& problem,
                                          std::size_t workspace_bytes, int most);

/// Returns true if make_cudnn_plan would find the plan of this name on the described GPU.
bool cudnn_has_plan(const std::string& gpu, const ConvProblem& problem, std::size_t workspace_bytes,
                    const std::string& name);

}  // namespace dpt
