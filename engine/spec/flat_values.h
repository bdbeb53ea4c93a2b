// A config as a list of its values.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace dpt {

/// A resolved config (from show_spec), taken apart.
struct FlatConfig {
  /// The values by their dotted paths, items of lists by name or index, in the order of the text.
  std::vector<std::pair<std::string, std::string>> values;
  /// Items of each list that has named ones, in their order, by the path of the list. The order of
  /// such a list is in none of the values.
  std::map<std::string, std::vector<std::string>> orders;
};

/// `which` names the config in the error (ErrorKind::usage).
FlatConfig flat_config(const std::string& yaml, const std::string& which);

/// Where lists have the items that are in all of them in different orders: these orders as texts,
/// one for each list, of which a common beginning and end are cut down to "...". Otherwise empty.
std::vector<std::string> differing_orders(const std::vector<std::vector<std::string>>& lists);

}  // namespace dpt
