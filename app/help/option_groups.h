// Groups of options: the headings under which help texts list the options. An option without a
// group is listed first, under "Options".
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
