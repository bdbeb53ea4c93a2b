// What a test case says when this machine lacks something that it needs: a GPU, real data, a small
// file system. doctest counts the case as passed, so `scripts/skipped-tests` counts these lines.
#pragma once

#include <doctest/doctest.h>

#include <cstdio>
#include <string>

namespace dpt::testing {

/// Prints "skipped: REASON [in: TEST CASE]"; the case (or its part that cannot run) then returns.
/// The reason names what is missing, in the same words in every case, so that equal ones are
/// counted.
inline void skip_test(const std::string& reason) {
  // doctest's own messages go to stdout as well; a line must stay whole.
  std::fflush(stdout);
  std::printf("\nskipped: %s [in: %s]\n", reason.c_str(),
              doctest::getContextOptions()->currentTest->m_name);
  std::fflush(stdout);
}

}  // namespace dpt::testing
