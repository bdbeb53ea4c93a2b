// Source of a model's layers: the config or the zoo, then patches, then overrides on the command
// line.
#pragma once

#include <string>
#include <vector>

#include "engine/config/issue.h"
#include "engine/config/spec_tables.h"
#include "engine/config/yaml_tree.h"

namespace dpt {

/// A command-line override of an item of model.layers.
struct LayerOverride {
  std::string text;
  int argument = 0;  ///< its number on the command line
};

/// Beginning of the error if the data set that determines the number of classes cannot be read.
inline constexpr const char* kClassesUnknown =
    "model.classes is not given, and the data cannot be read: ";

/// Puts the layers into the model of a config's tree. Keeps the model's `zoo` key unless layers of
/// the network were changed.
void make_layers(const SpecTables& tables, const Catalog& catalog, YamlNode& tree,
                 const std::vector<LayerOverride>& overrides, std::vector<ConfigIssue>& issues);

}  // namespace dpt
