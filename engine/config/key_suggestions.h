// Suggestions for unknown keys: names in other systems, and common mistakes.
#pragma once

#include <string>
#include <vector>

#include "engine/config/fields.h"
#include "engine/config/yaml_tree.h"

namespace dpt {

/// Returns the known key that is called `key` in other systems; empty if there is none.
std::string other_name(const std::string& key, const std::vector<std::string>& known);

/// Returns the first known key that begins with the word `key`: "batch_size" for "batch".
std::string longer_name(const std::string& key, const std::vector<std::string>& known);

/// Returns the kinds of a table that have a field with this name.
std::vector<std::string> kinds_with(const VariantTable* kinds, const std::string& key);

/// Returns "lr: 0.05" for a child that results from `lr: 0,05` inside {...}; otherwise empty.
std::string decimal_comma(const YamlNode& map, const YamlNode& child);

/// Returns "0.1" if the node has 0.1, 10% or 10 % in place of a count that may also be given as a
/// fraction; otherwise empty.
std::string fraction_of(const Field& field, const YamlNode& node);

/// Returns the places where the key is valid: "'data.batch_size'". Empty if there are none or too
/// many.
std::string elsewhere(const ObjectTable& root, const std::string& key);

}  // namespace dpt
