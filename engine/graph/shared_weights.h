// `share_weights`: which layers can use the parameters of an earlier one.
#pragma once

#include <string>
#include <vector>

#include "engine/layers/layer.h"
#include "engine/layers/param_spec.h"

namespace dpt {

/// Why `layer` cannot use the parameters of `owner`, as far as their specs tell; empty: it can.
std::string problem_of_owner(const LayerSpec& layer, const LayerSpec& owner);

/// Why a layer with the parameters `own` cannot use `theirs`, those of layer `owner`; empty: it
/// can.
std::string problem_of_shared(const std::vector<ParamSpec>& own, const std::string& owner,
                              const std::vector<ParamSpec>& theirs);

}  // namespace dpt
