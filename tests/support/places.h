// Where tests find the repository's files and the program: where the build says, or, for programs
// that were moved to another machine, where the environment variables DPT_SOURCE_DIR and DPT_BINARY
// say.
#pragma once

#include <string>

namespace dpt::testing {

std::string source_dir();
std::string dpt_program();

}  // namespace dpt::testing
