// The comment at the top of a config from which editors find the schema to complete and check it.
#pragma once

#include <string>

namespace dpt {

/// Returns a comment line with the path of the installed JSON Schema of configs. If dpt is not
/// installed, the line tells how to get the schema.
std::string editor_schema_line();

}  // namespace dpt
