// The comment at the top of a config that tells editors which schema to complete and check it with.
#pragma once

#include <string>

namespace dpt {

/// Returns a comment line with the path of the installed JSON Schema of configs. If dpt is not
/// installed, the line tells how to get the schema.
std::string editor_schema_line();

}  // namespace dpt
