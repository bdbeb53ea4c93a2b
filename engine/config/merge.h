// Merging of two trees.
#pragma once

#include <string>
#include <vector>

#include "engine/config/yaml_tree.h"

namespace dpt {

/// The text of the child `key` of a mapping; empty if there is none.
std::string text_of_child(const YamlNode& map, const std::string& key);
void remove_child(YamlNode& map, const std::string& key);

/// Merges `over` into `base`: mappings merge, everything else replaces. Where `tag` chooses another
/// kind, only the keys of `shared` stay of the base.
void merge(YamlNode& base, YamlNode over, const std::string& tag = "type",
           const std::vector<std::string>& shared = {});

}  // namespace dpt
