// Merging of a config with the config that it extends.
#pragma once

#include "engine/config/spec_tables.h"
#include "engine/config/yaml_tree.h"

namespace dpt {

/// Merges the config `over` into the `base` that it extends. A model that names other layers
/// replaces those of the base; patches are appended.
void merge_configs(YamlNode& base, YamlNode over, const SpecTables& tables);

}  // namespace dpt
