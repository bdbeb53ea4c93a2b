// Completion scripts for shells, made from the tree of commands. A script needs no call of dpt
// while the user types, and none of the shell's optional packages.
#pragma once

#include <string>
#include <vector>

#include "app/help/command_tree.h"
#include "engine/config/config_paths.h"

namespace dpt {

/// The script of a shell: "bash", "zsh" or "fish". `paths` are offered for KEY=VALUE.
std::string completion_script(const std::string& shell, const Command& root,
                              const std::vector<ConfigPath>& paths);

std::string bash_completion(const Command& root, const std::vector<ConfigPath>& paths);
std::string zsh_completion(const Command& root, const std::vector<ConfigPath>& paths);
std::string fish_completion(const Command& root, const std::vector<ConfigPath>& paths);

}  // namespace dpt
