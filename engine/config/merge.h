// Merging of two trees.
#pragma once

#include <string>
#include <vector>

#include "engine/config/yaml_tree.h"

namespace dpt {

/// Returns the text of the child `key` of a mapping; empty without that child.
std::string text_of_child(const YamlNode& map, const std::string& key);
/// Removes the child `key` if the mapping has it.
void remove_child(YamlNode& map, const std::string& key);

/// Merges `over` into `base`: mappings merge, everything else replaces. If `over` changes the kind
/// that `tag` chooses, only the keys in `shared` are kept from the base.
void merge(YamlNode& base, YamlNode over, const std::string& tag = "type",
           const std::vector<std::string>& shared = {});

}  // namespace dpt
