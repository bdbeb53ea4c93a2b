// The help texts that --help prints.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "app/help/command_tree.h"

namespace dpt {

/// Name of an option or argument with the name of its value, and its description.
using HelpRow = std::pair<std::string, std::string>;

struct HelpSection {
  std::string title;
  std::vector<HelpRow> rows;
};

/// Returns the arguments and options of `command`, in groups if there are many.
std::vector<HelpSection> option_help(const Command& command);

/// Returns the help text of `command` in lines of up to `columns` columns, but at least 40.
std::string help_text(const Command& command, std::size_t columns);

}  // namespace dpt
