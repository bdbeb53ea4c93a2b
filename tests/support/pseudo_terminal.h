// Checks for pseudo-terminals, which a chroot without devpts lacks.
#pragma once

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/support/skip.h"

namespace dpt::testing {

/// Returns true if a pseudo-terminal can be opened. Otherwise reports the test case as skipped.
inline bool has_pseudo_terminals() {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  bool works = terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0;
  if (works) {
    const int other = open(ptsname(terminal), O_RDWR | O_NOCTTY | O_CLOEXEC);
    works = other >= 0;
    if (works) close(other);
  }
  if (terminal >= 0) close(terminal);
  if (!works) skip_test("this system has no pseudo-terminals (/dev/ptmx, /dev/pts)");
  return works;
}

}  // namespace dpt::testing
