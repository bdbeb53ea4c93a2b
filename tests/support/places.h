// Paths of the repository's files and of the program. They are set by the build. For programs that
// were moved to another machine, the environment variables DPT_SOURCE_DIR and DPT_BINARY set them.
#pragma once

#include <string>

namespace dpt::testing {

std::string source_dir();
std::string dpt_program();

}  // namespace dpt::testing
