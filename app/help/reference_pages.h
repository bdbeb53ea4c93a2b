// Generates docs/reference/commands.md and exit-codes.md from the sources of --help and the manual
// pages.
#pragma once

#include <functional>
#include <string>

#include "app/help/command_tree.h"

namespace dpt {

/// Returns the page of all commands. `prose` returns the fragment in docs/man for a command.
std::string commands_page(const Command& root,
                          const std::function<std::string(const Command&)>& prose);

std::string exit_codes_page();

}  // namespace dpt
