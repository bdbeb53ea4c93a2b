// Suggests entries of `weights` in a config for a file that does not fit the model.
#pragma once

#include <string>
#include <vector>

namespace dpt {

/// Returns patterns that match `names`, as a YAML list: one for each layer, up to 10, and the
/// number of further ones. No pattern matches any of `others`, the names that are loaded.
std::string patterns_for(const std::vector<std::string>& names,
                         const std::vector<std::string>& others);

/// Returns a list with one pattern, for the layer of this tensor.
std::string pattern_for_layer(const std::string& name);

/// Returns an entry of WeightsSpec::map, as YAML, that would map left-over names to missing ones;
/// empty if there is none.
std::string map_entry_for(const std::vector<std::string>& missing,
                          const std::vector<std::string>& left_over);

}  // namespace dpt
