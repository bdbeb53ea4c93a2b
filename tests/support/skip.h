// The message of a test case that is skipped because the machine lacks something it needs: a GPU,
// real data, a small file system. doctest counts the case as passed, so `scripts/skipped-tests`
// counts these messages.
#pragma once

#include <doctest/doctest.h>

#include <cstdio>
#include <string>

namespace dpt::testing {

/// Prints "skipped: REASON [in: TEST CASE]". The caller then leaves out what cannot run.
/// The reason names the missing thing, in the same words in every case, so that equal reasons are
/// counted together.
inline void skip_test(const std::string& reason) {
  // doctest's messages go to stdout as well, and a line must stay whole.
  std::fflush(stdout);
  std::printf("\nskipped: %s [in: %s]\n", reason.c_str(),
              doctest::getContextOptions()->currentTest->m_name);
  std::fflush(stdout);
}

}  // namespace dpt::testing
