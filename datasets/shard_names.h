// Expands a pattern of a config to tar files.
#pragma once

#include <string>
#include <vector>

namespace dpt {

/// Returns the shards that a pattern with braces or wildcards names, each once. `field` is the key
/// of the config that holds it. Throws ErrorKind::usage for an invalid pattern, ErrorKind::data if
/// no file matches.
std::vector<std::string> find_shards(const std::string& pattern, const std::string& field);

}  // namespace dpt
