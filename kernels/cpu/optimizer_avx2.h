// The AVX2 loops of optimizer.h. REQUIRES: CpuFeatures::avx2.
#pragma once

#include "kernels/cpu/optimizer.h"

namespace dpt::optimizer_avx2 {

FormulaLoops loops_of(int formula);

}  // namespace dpt::optimizer_avx2
