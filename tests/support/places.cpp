// The only file that is compiled with paths of the build tree. All other files compile identically
// in every clone, so that clones can share a compiler cache.
#include "tests/support/places.h"

#include <cstdlib>

namespace dpt::testing {

std::string source_dir() {
  const char* moved = std::getenv("DPT_SOURCE_DIR");
  return moved ? moved : DPT_SOURCE_DIR;
}

std::string dpt_program() {
  const char* moved = std::getenv("DPT_BINARY");
  return moved ? moved : DPT_BINARY;
}

}  // namespace dpt::testing
