// `model.patch`: changes to a list of layers of the zoo, or of a config that this one extends. A
// patch is applied to the tree, before it is read into structs.
//
//   patch:
//     - {change: conv1, out_channels: 32}              # these fields; the others stay
//     - {insert_after: layer1.0.bn1, layers: [...]}    # or insert_before
//     - {delete: pool2}
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/config/issue.h"
#include "engine/config/yaml_tree.h"

namespace dpt {

inline constexpr const char* kPatchKey = "patch";
inline constexpr const char* kPatchDoc =
    "Changes to layers, applied in order; NAME is the full name of a layer. `{change: NAME, KEY: "
    "VALUE, ...}` replaces those fields of the layer (a new `type` replaces all fields except name "
    "and from), `{insert_before: NAME, layers: [...]}` and `{insert_after: NAME, layers: [...]}` "
    "add layers next to it, and `{delete: NAME}` removes it. The patches of a config are applied "
    "after those of the config that it extends. A layer without a name is addressed by its index "
    "after the preceding changes.";

/// Place of a layer or block in the tree.
struct LayerPlace {
  YamlNode* list = nullptr;
  std::size_t index = 0;

  YamlNode& item() const { return list->children[index]; }
};

/// Finds the layer or block `name` in a list of layers and their blocks. If it is in a copy of a
/// repeated block, expands the copies first; this changes no name.
std::optional<LayerPlace> find_layer(YamlNode& layers, const std::string& name);

/// Returns "there is no layer 'conv9', did you mean 'conv1'? Layers: conv1, fc".
std::string no_such_layer(YamlNode& layers, const std::string& name);

/// Applies all entries of `patch` to the list `layers`.
void apply_patch(YamlNode& layers, const YamlNode& patch, std::vector<ConfigIssue>& issues);

}  // namespace dpt
