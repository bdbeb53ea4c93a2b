// Expands a pattern of a config to tar files.
#pragma once

#include <string>
#include <vector>

namespace dpt {

/// Returns the shards that a pattern with braces or wildcards names. `field` is the config key of
/// the pattern. Throws ErrorKind::usage for a pattern that is invalid or names a shard twice, and
/// ErrorKind::data if no file matches.
std::vector<std::string> find_shards(const std::string& pattern, const std::string& field);

}  // namespace dpt
