// Takes the place of every *_avx2.cpp and *_avx512.cpp of this folder where the build is not for
// x86: CpuFeatures has none of these instruction sets there, so nothing here is ever called.
#include <cstdlib>

#include "kernels/cpu/batch_norm_rows.h"
#include "kernels/cpu/direct_conv.h"
#include "kernels/cpu/direct_linear.h"
#include "kernels/cpu/flat_avx2.h"
#include "kernels/cpu/optimizer_avx2.h"
#include "kernels/cpu/optimizer_loops.h"

namespace dpt {

namespace flat_avx2 {

// No elements done in vectors: flat.cpp does all of them.
std::int64_t add(float*, const float*, const float*, std::int64_t) {
  return 0;
}
std::int64_t add_squares(const float*, std::int64_t, double[16]) {
  return 0;
}

}  // namespace flat_avx2

namespace batch_norm {

const RowKernels& row_kernels_avx2() {
  std::abort();
}
const RowKernels& row_kernels_avx512() {
  std::abort();
}

}  // namespace batch_norm

FormulaLoops optimizer_avx2::loops_of(int) {
  std::abort();
}

namespace direct {

// The factories of direct kernels return null without AVX2.
const ConvKernels& conv_kernels_avx2() {
  std::abort();
}
const ConvKernels& conv_kernels_avx512() {
  std::abort();
}
const ConvKernels& winograd_kernels_avx2() {
  std::abort();
}
const ConvKernels& winograd_kernels_avx512() {
  std::abort();
}
const LinearKernels& linear_kernels_avx2() {
  std::abort();
}
const LinearKernels& linear_kernels_avx512() {
  std::abort();
}

}  // namespace direct
}  // namespace dpt
