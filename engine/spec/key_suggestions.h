// Suggestions for keys that a mapping does not have: what other systems call ours, and mistakes
// that people make.
#pragma once

#include <string>
#include <vector>

#include "engine/spec/fields.h"
#include "engine/spec/yaml_tree.h"

namespace dpt {

/// Returns the known key that other systems call `key`; empty if there is none.
std::string other_name(const std::string& key, const std::vector<std::string>& known);

/// Returns the known key that begins with the word: "batch_size" for "batch".
std::string longer_name(const std::string& key, const std::vector<std::string>& known);

/// Returns the kinds of a table that have a field of that name.
std::vector<std::string> kinds_with(const VariantTable* kinds, const std::string& key);

/// Returns "lr: 0.05" for a child that `lr: 0,05` inside {...} has made; else nothing.
std::string decimal_comma(const YamlNode& map, const YamlNode& child);

/// Returns "0.1" for 0.1, 10% and 10 % in the place of a count that may be a fraction; else
/// nothing.
std::string fraction_of(const Field& field, const YamlNode& node);

/// Returns where a key would be right: "'batch_size' in data". Empty if nowhere.
std::string elsewhere(const ObjectTable& root, const std::string& key);

}  // namespace dpt
