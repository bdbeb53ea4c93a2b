// Keys that had other names in earlier releases.
#pragma once

#include "engine/config/fields.h"
#include "engine/config/yaml_tree.h"

namespace dpt {

/// Replaces every former name of a key (Field::former_name) by its present name.
void rename_former_keys(const ObjectTable& table, YamlNode& node);

}  // namespace dpt
