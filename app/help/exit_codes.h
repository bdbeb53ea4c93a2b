// Exit codes for people: what --help, the manual page and docs/reference/exit-codes.md say of them.
#pragma once

#include <string>
#include <vector>

namespace dpt {

struct ExitCode {
  std::string code;   ///< "75"; "129, 130, 143"
  std::string brief;  ///< for --help
  std::string doc;    ///< for the pages; `words` in backticks are to be written as they are
};

const std::vector<ExitCode>& exit_codes();

}  // namespace dpt
