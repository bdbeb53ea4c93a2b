#include "kernels/cpu/simd/bf16_loops.h"

#include "kernels/cpu/simd/kernel_tables.h"

namespace dpt {

const Bf16Loops* bf16_loops() {
  static const Bf16Loops* const loops = kernel_tables(CpuFeatures::detect()).bf16;
  return loops;
}

}  // namespace dpt
