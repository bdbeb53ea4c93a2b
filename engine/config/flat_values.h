// A config as a list of its values.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace dpt {

/// Resolved config (from show_spec) as a list of values.
struct FlatConfig {
  /// Dotted paths and their values, in the order of the text. A path identifies items of lists by
  /// name or index.
  std::vector<std::pair<std::string, std::string>> values;
  /// Path of each list with named items -> the names in order. A comparison of the values by path
  /// does not see this order.
  std::map<std::string, std::vector<std::string>> orders;
};

/// Parses a resolved config. `which` names it in the error (ErrorKind::usage).
FlatConfig flat_config(const std::string& yaml, const std::string& which);

/// Compares the orders of the items that all lists have in common. Returns empty if they are equal;
/// otherwise one text for each list, with a common beginning and end shortened to "...".
std::vector<std::string> differing_orders(const std::vector<std::vector<std::string>>& lists);

/// Lists the differences between two resolved configs (from show_spec) as lines "path: old -> new".
/// The line for a list with named items may be "path: the order differs: a, b -> b, a". Leaves out
/// values at or below the dotted paths in `ignored`.
std::vector<std::string> diff_specs(const std::string& old_yaml, const std::string& new_yaml,
                                    const std::vector<std::string>& ignored);

}  // namespace dpt
