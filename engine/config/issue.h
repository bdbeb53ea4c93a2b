// Errors of a config.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "kernels/base/error.h"

namespace dpt {

/// One error of a config. `text` says what was expected, what was found, and what may have been
/// meant.
struct ConfigIssue {
  Where where;
  std::string text;
  bool is_of_data = false;  ///< the config is valid, but data that it depends on cannot be read
  /// Path of the field ("data.batch_size"), or of the mapping around an unknown or missing key.
  /// Ends with kTogether if the fields are valid but do not fit together. Empty for the whole file.
  std::string path = {};
};

inline constexpr const char* kTogether = ".*";

/// Returns true if an issue is about a field at or below `path`, or about a mapping around it.
bool concerns(const ConfigIssue& issue, const std::string& path);

/// Returns one line for each issue, with its place and text.
std::string text_of(const std::vector<ConfigIssue>& issues);

/// Maximum number of issues of a config that are reported; further ones are only counted, because
/// finding suggestions takes time.
inline constexpr std::size_t kMaxIssues = 200;

}  // namespace dpt
