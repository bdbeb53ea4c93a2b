// Tests of several processes need the links between them.
#pragma once

#include "engine/collectives/process_links.h"
#include "tests/support/skip.h"

namespace dpt::testing {

/// Whether a test case that needs Gloo must be skipped, which it then says.
inline bool lacks_gloo() {
  if (gloo_is_built_in()) return false;
  skip_test("this build has no Gloo");
  return true;
}

}  // namespace dpt::testing
