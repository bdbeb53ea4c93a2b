// `share_weights`: checks whether a layer can use the parameters of an earlier one.
#pragma once

#include <string>
#include <vector>

#include "engine/layers/layer.h"
#include "engine/layers/param_spec.h"

namespace dpt {

/// Returns the reason why `layer` cannot use the parameters of `owner`, judging only by their
/// specs; empty if none is found.
std::string problem_of_owner(const LayerSpec& layer, const LayerSpec& owner);

/// Returns the reason why a layer with the parameters `own` cannot use `theirs`, the parameters of
/// layer `owner`; empty if it can.
std::string problem_of_shared(const std::vector<ParamSpec>& own, const std::string& owner,
                              const std::vector<ParamSpec>& theirs);

}  // namespace dpt
