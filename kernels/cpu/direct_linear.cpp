// Chooses among our own linear kernels.
#include "kernels/cpu/direct.h"

namespace dpt {

std::unique_ptr<Op> make_direct_linear(const LinearDesc&, const CpuFeatures&) {
  return nullptr;
}

}  // namespace dpt
