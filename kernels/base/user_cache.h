// The folder for what dpt keeps about this machine and may always find out again.
#pragma once

#include <string>

namespace dpt {

/// Returns $XDG_CACHE_HOME/dpt/NAME, or ~/.cache/dpt/NAME; empty if neither XDG_CACHE_HOME nor HOME
/// is set.
std::string user_cache_path(const std::string& name);

}  // namespace dpt
