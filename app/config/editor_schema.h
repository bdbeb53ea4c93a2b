// The comment at the top of a config that makes editors complete and check it.
#pragma once

#include <string>

namespace dpt {

/// Returns a line of a config that names the installed JSON Schema of configs; of a program that is
/// not installed, one that says how to get the schema.
std::string editor_schema_line();

}  // namespace dpt
