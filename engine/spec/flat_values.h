// A config as a list of its values.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace dpt {

/// The values of a resolved config (from show_spec) by their dotted paths, items of lists by name
/// or index, in the order of the text. `which` names it in the error (ErrorKind::usage).
std::vector<std::pair<std::string, std::string>> flat_values(const std::string& yaml,
                                                             const std::string& which);

}  // namespace dpt
