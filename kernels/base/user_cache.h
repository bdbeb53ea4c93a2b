// The folder for what dpt keeps about this machine but could always find out again.
#pragma once

#include <string>

namespace dpt {

/// Returns $XDG_CACHE_HOME/dpt/NAME, or ~/.cache/dpt/NAME. Ignores a variable that is not an
/// absolute path, as the XDG specification requires. Returns an empty string if neither variable is
/// one.
std::string user_cache_path(const std::string& name);
/// Returns the reason why user_cache_path is empty: "XDG_CACHE_HOME is not set, and HOME is empty".
std::string no_user_cache_text();
/// Returns a note for the user if ~/.cache is used because XDG_CACHE_HOME is a relative path.
/// Otherwise returns an empty string.
std::string ignored_cache_home_text();

}  // namespace dpt
