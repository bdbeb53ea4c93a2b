// The AVX2 loops of optimizers. REQUIRES: CpuFeatures::avx2.
#pragma once

#include "kernels/cpu/optimizer_loops.h"

namespace dpt::optimizer_avx2 {

FormulaLoops loops_of(int formula);

}  // namespace dpt::optimizer_avx2
