// Paths as a config stores them: `${VAR}` in place of the value of a secret variable.
#pragma once

#include <string>

namespace dpt {

/// Records that configs store the resolved `path` as `written`, because `path` contains the value
/// of a secret variable. Thread-safe.
void remember_secret_path(const std::string& path, const std::string& written);
/// Returns a message if the variable of a stored path is not set; empty for any other path.
/// Thread-safe.
std::string problem_of_stored_path(const std::string& path);
/// Returns the text that a config stores for a resolved path: expanding and resolving it gives
/// `path` again. Thread-safe.
std::string stored_path(const std::string& path);

}  // namespace dpt
