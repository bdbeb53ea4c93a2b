// Descriptions of the exit codes, for --help, the manual page and docs/reference/exit-codes.md.
#pragma once

#include <string>
#include <vector>

namespace dpt {

struct ExitCode {
  std::string code;   ///< "75"; "129, 130, 143"
  std::string brief;  ///< description in --help
  std::string doc;    ///< description in the pages; words in backticks are code
};

const std::vector<ExitCode>& exit_codes();

}  // namespace dpt
