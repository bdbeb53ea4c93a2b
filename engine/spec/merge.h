// Merging trees: what a config says over what it extends.
#pragma once

#include "engine/spec/spec_tables.h"
#include "engine/spec/yaml_tree.h"

namespace dpt {

/// The text of the child `key` of a mapping; empty if there is none.
std::string text_of_child(const YamlNode& map, const std::string& key);
void remove_child(YamlNode& map, const std::string& key);

/// Merges `over` into `base`: mappings merge, everything else replaces. Where `tag` chooses another
/// kind, only the keys of `shared` stay of the base.
void merge(YamlNode& base, YamlNode over, const std::string& tag = "type",
           const std::vector<std::string>& shared = {});

/// The same for whole configs: a model that names other layers drops those of the base, and patches
/// add up.
void merge_configs(YamlNode& base, YamlNode over, const SpecTables& tables);

}  // namespace dpt
