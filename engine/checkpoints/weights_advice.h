// Advice on what to write into `weights` of a config for a file that does not fit the model.
#pragma once

#include <string>
#include <vector>

namespace dpt {

/// Returns patterns that match all of `names`, as a YAML list: one for each layer, up to 200 of
/// them. None of them matches one of `others`, the names that are loaded.
std::string patterns_for(const std::vector<std::string>& names,
                         const std::vector<std::string>& others);

/// Returns a list of one pattern: for the layer of this tensor.
std::string pattern_for_layer(const std::string& name);

/// Returns an entry of WeightsSpec::map that would give missing tensors the names of left-over
/// ones, as YAML; empty if there is none.
std::string map_entry_for(const std::vector<std::string>& missing,
                          const std::vector<std::string>& left_over);

}  // namespace dpt
