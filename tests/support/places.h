// Where tests find the repository's files and the program: where the build says, or, for programs
// that were moved to another machine, where the environment variables DPT_SOURCE_DIR and DPT_BINARY
// say.
#pragma once

#include <cstdlib>
#include <string>

namespace dpt::testing {

inline std::string source_dir() {
  const char* moved = std::getenv("DPT_SOURCE_DIR");
  return moved ? moved : DPT_SOURCE_DIR;
}

inline std::string dpt_program() {
  const char* moved = std::getenv("DPT_BINARY");
  return moved ? moved : DPT_BINARY;
}

}  // namespace dpt::testing
