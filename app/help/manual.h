// Manual pages. Synopsis and options come from the tree of commands, the rest from a fragment in
// roff.
#pragma once

#include <string>
#include <utility>

#include "app/help/command_tree.h"

namespace dpt {

/// Returns the name of a command's page: "dpt-data-check", or "dpt" for the root.
std::string page_name(const Command& command);

/// Divides a fragment into the text that continues the description and the sections that follow the
/// options.
std::pair<std::string, std::string> split_prose(const std::string& prose);

std::string with_full_stop(std::string text);

/// Returns the page of a command below `root`. `prose` continues the description. The part of
/// `prose` from its first .SH on follows the options. `date` is YYYY-MM-DD.
std::string manual_page(const Command& root, const Command& command, const std::string& prose,
                        const std::string& date);

}  // namespace dpt
