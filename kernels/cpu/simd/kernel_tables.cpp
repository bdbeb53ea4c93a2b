#include "kernels/cpu/simd/kernel_tables.h"

#include "kernels/cpu/simd/batch_norm_rows.h"
#include "kernels/cpu/simd/bf16_loops.h"
#include "kernels/cpu/simd/conv_table.h"
#include "kernels/cpu/simd/flat_loops.h"
#include "kernels/cpu/simd/linear_table.h"
#include "kernels/cpu/simd/optimizer_loops.h"

namespace dpt {

KernelTables kernel_tables([[maybe_unused]] const CpuFeatures& features) {
  KernelTables tables;
  // kernels/CMakeLists.txt compiles none of these for other architectures.
#if defined(__x86_64__) || defined(__i386__)
  if (!features.avx2) return tables;
  tables = {&direct::kConvAvx2,     &direct::kWinogradAvx2, &direct::kLinearAvx2,
            &batch_norm::kRowsAvx2, &kFlatLoopsAvx2,        kOptimizerLoopsAvx2};
  tables.batch_norm_bf16 = tables.batch_norm;
  if (!features.avx512) return tables;
  tables.direct_conv = &direct::kConvAvx512;
  tables.winograd = &direct::kWinogradAvx512;
  tables.direct_linear = &direct::kLinearAvx512;
  tables.batch_norm = &batch_norm::kRowsAvx512;
  tables.batch_norm_bf16 = &batch_norm::kRowsAvx512;
  tables.bf16 = &kBf16LoopsAvx512;
  if (!features.avx512_bf16) return tables;
  tables.direct_conv_bf16 = &direct::kConvAvx512Bf16;
  tables.winograd_bf16 = &direct::kWinogradAvx512Bf16;
  tables.batch_norm_bf16 = &batch_norm::kRowsAvx512Bf16;
#endif
  return tables;
}

}  // namespace dpt
