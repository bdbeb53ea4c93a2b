// Configs that dpt itself stored: names that have changed since.
#pragma once

#include "engine/spec/spec_tables.h"
#include "engine/spec/yaml_tree.h"

namespace dpt {

/// Gives every key that stands under a former name (Field::former_name) its name of today.
void rename_former_keys(const ObjectTable& table, YamlNode& node);

}  // namespace dpt
