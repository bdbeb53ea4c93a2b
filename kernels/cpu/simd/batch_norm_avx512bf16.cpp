// Batch normalisation of rows, compiled for AVX512-BF16, which has an instruction that rounds to
// bf16.
#include "kernels/cpu/simd/batch_norm_row16.h"
#include "kernels/cpu/simd/vec_avx512bf16.h"

namespace dpt::batch_norm {

constexpr RowKernels kRowsAvx512Bf16 = row_kernels<Row16<avx512bf16::PairVec>>("own:avx512_bf16");

}  // namespace dpt::batch_norm
