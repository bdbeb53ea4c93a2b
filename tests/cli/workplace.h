// A folder in which tests run the program and read its outputs.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/cli/program.h"
#include "tests/support/events.h"
#include "tests/support/text.h"

namespace dpt::testing {

/// A folder that contains a config, "small.yaml".
struct Workplace {
  TempDir dir;
  explicit Workplace(const std::string& config = program_config()) {
    write_file(dir.file("small.yaml"), config);
  }
  Finished run(const std::vector<std::string>& arguments) const {
    return run_dpt(arguments, dir.path());
  }
  /// Runs the program with `more` arguments appended.
  Finished run(std::vector<std::string> arguments, const std::vector<std::string>& more) const {
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
  /// Runs the program, which must succeed.
  Finished run_well(const std::vector<std::string>& arguments,
                    const std::vector<std::string>& more = {}) const {
    Finished finished = run(arguments, more);
    INFO(finished.err);
    REQUIRE(finished.exit_code == 0);
    return finished;
  }
};

}  // namespace dpt::testing
