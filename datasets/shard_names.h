// Which tar files a pattern of a config names.
#pragma once

#include <string>
#include <vector>

namespace dpt {

/// Returns the shards that a pattern with braces or wildcards names, each once. `field` is the key
/// of the config that holds it. Throws ErrorKind::usage for a wrong pattern, ErrorKind::data if no
/// file has such a name.
std::vector<std::string> find_shards(const std::string& pattern, const std::string& field);

}  // namespace dpt
