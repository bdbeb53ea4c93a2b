// The AVX2 loops of optimizer.h. REQUIRES: CpuFeatures::avx2.
#pragma once

#include "kernels/cpu/optimizer.h"

namespace dpt::optimizer_avx2 {

UpdateLoop update_loop(int formula);

}  // namespace dpt::optimizer_avx2
