// Completion scripts for shells, generated from the tree of commands. A script neither calls dpt
// while the user types nor needs optional packages of the shell.
#pragma once

#include <string>
#include <vector>

#include "app/help/command_tree.h"
#include "engine/config/config_paths.h"

namespace dpt {

/// Returns the script for a shell, "bash", "zsh" or "fish". It suggests `paths` for KEY=VALUE.
std::string completion_script(const std::string& shell, const Command& root,
                              const std::vector<ConfigPath>& paths);

std::string bash_completion(const Command& root, const std::vector<ConfigPath>& paths);
std::string zsh_completion(const Command& root, const std::vector<ConfigPath>& paths);
std::string fish_completion(const Command& root, const std::vector<ConfigPath>& paths);

}  // namespace dpt
