// Keys that had other names in earlier releases.
#pragma once

#include "engine/config/fields.h"
#include "engine/config/yaml_tree.h"

namespace dpt {

/// Gives every key that stands under a former name (Field::former_name) its name of today.
void rename_former_keys(const ObjectTable& table, YamlNode& node);

}  // namespace dpt
