// Command-line arguments `key=value`, which replace values in the tree of a config.
#pragma once

#include <string>
#include <vector>

#include "engine/config/issue.h"
#include "engine/config/yaml_tree.h"

namespace dpt {

/// Value of Where::file for a value from the command line. Its Where::line is 0, and its
/// Where::column is the number of the argument, from 1.
inline constexpr const char* kCommandLine = "command line";

/// Returns true if the argument overrides an item of model.layers. Such an argument must wait until
/// the zoo and the patches have completed that list.
bool is_for_layers(const std::string& override_text);

/// Puts the n-th argument, `path=value`, into the tree.
void apply_override(YamlNode& root, const std::string& override_text, int argument,
                    std::vector<ConfigIssue>& issues);

}  // namespace dpt
