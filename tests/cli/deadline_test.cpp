// The tests' own deadline: a case that hangs is named and ended.
#include <doctest/doctest.h>

#include <cstdlib>

#include "tests/cli/program.h"

using namespace dpt::testing;

TEST_CASE("a test case that hangs is aborted with its name") {
  if (std::getenv("DPT_TEST_HANG")) {
    for (;;) pause();
  }
  const TempDir dir;
  const std::string command =
      "DPT_TEST_HANG=1 DPT_TEST_DEADLINE=1 /proc/" + std::to_string(getpid()) +
      "/exe -tc='a test case that hangs is aborted*' > " + dir.file("output") + " 2>&1";
  const int status = std::system(command.c_str());
  CHECK(status != 0);
  const std::string output = read_file(dir.file("output"));
  INFO(output);
  CHECK(output.find("'a test case that hangs is aborted with its name' did not end within 1 s") !=
        std::string::npos);
}
