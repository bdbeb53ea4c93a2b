// Batch normalisation of rows, compiled for AVX-512.
#include "kernels/cpu/simd/batch_norm_row16.h"
#include "kernels/cpu/simd/vec_avx512.h"

namespace dpt::batch_norm {
constexpr RowKernels kRowsAvx512 = row_kernels<Row16<avx512::Vec>>("own:avx512");

}  // namespace dpt::batch_norm
