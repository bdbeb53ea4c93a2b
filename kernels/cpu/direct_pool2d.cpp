// Our own pooling kernels: none. A pool behind a convolution is fused into it (direct_conv2d.cpp),
// and the loops of pool2d.cpp, which take every other one, are bound by memory already.
#include "kernels/cpu/direct.h"

namespace dpt {

std::unique_ptr<Op> make_direct_pool2d(const Pool2dDesc&, const CpuFeatures&) {
  return nullptr;
}

}  // namespace dpt
