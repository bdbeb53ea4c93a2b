// Manual pages, made from the tree of commands and of prose: a page's synopsis and options come
// from the commands, the rest from a fragment in roff.
#pragma once

#include <string>
#include <utility>

#include "app/help/command_tree.h"

namespace dpt {

/// "dpt-data-check"; of dpt itself "dpt".
std::string page_name(const Command& command);

/// Returns what continues the description, and the sections that follow the options.
std::pair<std::string, std::string> split_prose(const std::string& prose);

std::string with_full_stop(std::string text);

/// The page of a command below `root`. `prose` continues the description; from its first .SH on it
/// comes after the options. `date` is YYYY-MM-DD.
std::string manual_page(const Command& root, const Command& command, const std::string& prose,
                        const std::string& date);

}  // namespace dpt
