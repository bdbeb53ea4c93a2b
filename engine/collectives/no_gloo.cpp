// In place of gloo.cpp where Gloo is not there or not wanted (DPT_GLOO).
#include "engine/collectives/process_links.h"
#include "kernels/error.h"

namespace dpt {

bool gloo_is_built_in() {
  return false;
}

std::unique_ptr<ProcessLinks> make_gloo_links(int /*rank*/, int size,
                                              const std::string& /*address*/,
                                              const GatherTexts& /*gather*/) {
  fail(ErrorKind::device,
       "a world of {} processes needs Gloo, which this build of dpt leaves out: install "
       "libgloo-dev (Debian's name), build with -DDPT_GLOO=ON, or run one process with several "
       "`devices`",
       size);
}

}  // namespace dpt
