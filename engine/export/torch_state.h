// Weights as a `state_dict` of PyTorch.
#pragma once

#include <string>
#include <vector>

#include "engine/export/facts.h"
#include "engine/graph/plan.h"

namespace dpt {

/// Writes a safetensors file that load_state_dict(strict=True) accepts. It has every parameter,
/// running statistic and counter of the plan, and no other tensors, with PyTorch's names, layouts
/// (OIHW) and types (num_batches_tracked is int64). `params` are in buffer layout. Replaces `path`
/// as write_safetensors does. Throws ErrorKind::data.
void write_torch_state(const std::string& path, const Plan& plan, const std::vector<float>& params,
                       const ExportFacts& facts);

}  // namespace dpt
