// Help texts: what --help prints.
#pragma once

#include <cstddef>
#include <string>

#include "app/command_tree.h"

namespace dpt {

/// Returns the help text of `command` in lines of up to `columns` columns, but at least 40.
std::string help_text(const Command& command, std::size_t columns);

}  // namespace dpt
