// Groups of options, which help texts list under headings. An option that the table lacks is listed
// first, under "Options".
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
