// docs/reference/commands.md and exit-codes.md, made from what --help and the manual pages say.
#pragma once

#include <functional>
#include <string>

#include "app/help/command_tree.h"

namespace dpt {

/// Returns the page of all commands. `prose` gives the fragment of docs/man of a command.
std::string commands_page(const Command& root,
                          const std::function<std::string(const Command&)>& prose);

std::string exit_codes_page();

}  // namespace dpt
