// Groups of options, under whose headings help texts list them. One table; an option without a line
// in it is listed first, under "Options".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dpt {

/// Returns the group of an option ("--run-dir").
std::string option_group(std::string_view option);

/// Returns all groups in the order of help texts.
std::vector<std::string> option_groups();

}  // namespace dpt
