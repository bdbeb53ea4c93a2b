#include "kernels/cpu/winograd_conv2d.h"

#include "kernels/cpu/simd/kernel_tables.h"

namespace dpt {
namespace {

bool applies(const Conv2dDesc& d, const CpuFeatures& features) {
  const std::int64_t lanes = features.avx512 ? 16 : 8;
  return d.groups == 1 && !d.pool && d.kernel == Size2{3, 3} && d.stride == Size2{1, 1} &&
         d.dilation == Size2{1, 1} && d.padding.h <= 2 && d.padding.w <= 2 && d.batch >= 1 &&
         d.in.c % lanes == 0 && d.conv_out.c % lanes == 0;
}

/// Returns true if Winograd's kernels are faster than the direct ones and oneDNN
/// (docs/internals/performance.md). They need at least 32 channels (16 on AMD's AVX-512), because
/// with fewer the transforms take the time that they save. They also need enough tiles to justify
/// the transform of the weights, which costs more in bf16. In bf16, oneDNN is faster where it can
/// use AMX.
bool winograd_pays(const Conv2dDesc& d, const CpuTarget& target) {
  const CpuFeatures& features = target.features;
  if (d.type == DType::bf16 && features.amx) return false;
  if (target.threads > 1 && d.batch < 2 * target.threads) return false;
  const std::int64_t min_channels = features.avx512 && features.amd ? 16 : 32;
  const std::int64_t min_tiles = d.type == DType::bf16 ? 128 : 32;
  const std::int64_t tiles = d.batch / target.threads * ((d.out.h + 1) / 2) * ((d.out.w + 1) / 2);
  return d.in.c >= min_channels && d.out.c >= min_channels && tiles >= min_tiles &&
         tiles >= d.in.c * d.out.c / 2048;
}

}  // namespace

std::unique_ptr<Op> make_winograd_conv2d(const Conv2dDesc& desc, const CpuTarget& target,
                                         Prefer prefer) {
  if (!applies(desc, target.features)) return nullptr;
  if (prefer == Prefer::fastest && !winograd_pays(desc, target)) return nullptr;
  const KernelTables tables = kernel_tables(target.features);
  return make_own_conv2d(desc, tables.winograd, tables.winograd_bf16, target.threads);
}

}  // namespace dpt
