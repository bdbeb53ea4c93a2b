#include "kernels/cpu/direct_conv2d.h"

#include "kernels/common/conv_padding.h"
#include "kernels/cpu/simd/kernel_tables.h"

namespace dpt {
namespace {

/// Returns true for the only pooling that the kernels can fuse: 2x2 with stride 2, whole windows,
/// no padding.
bool applies(const Pool2dDesc& pool) {
  const Size2 two{2, 2}, none{0, 0}, one{1, 1};
  const bool plain_average = pool.divisor_override == 0 || pool.divisor_override == 4;
  return pool.kernel == two && pool.stride == two && pool.padding == none && pool.dilation == one &&
         2 * pool.out.h <= pool.in.h && 2 * pool.out.w <= pool.in.w &&
         (pool.kind == PoolKind::max || plain_average);
}

bool applies(const Conv2dDesc& d) {
  return d.groups == 1 && d.dilation == Size2{1, 1} && d.batch >= 1 && d.padding.h < d.kernel.h &&
         d.padding.w < d.kernel.w && pads_evenly(d, d.conv_out) && (!d.pool || applies(*d.pool));
}

/// Returns true if the direct kernels are faster than oneDNN. In bf16 they always are, unless the
/// processor has AMX, which only oneDNN uses. In fp32, they are faster with a fused pool, or if the
/// channels do not fill whole vectors; for 3x3 kernels over whole vectors of channels, oneDNN is as
/// fast or a few percent faster. With several threads, fp32 also needs at least two samples per
/// thread.
bool pays(const Conv2dDesc& d, const CpuTarget& target) {
  if (d.type == DType::bf16) return !target.features.amx;
  const bool is_odd = d.in.c % 8 != 0 || d.conv_out.c % 8 != 0;
  return (d.pool || is_odd) && (target.threads == 1 || d.batch >= 2 * target.threads);
}

}  // namespace

std::unique_ptr<Op> make_direct_conv2d(const Conv2dDesc& desc, const CpuTarget& target,
                                       Prefer prefer) {
  if (!applies(desc) || (prefer == Prefer::fastest && !pays(desc, target))) return nullptr;
  const KernelTables tables = kernel_tables(target.features);
  return make_own_conv2d(desc, tables.direct_conv, tables.direct_conv_bf16, target.threads);
}

}  // namespace dpt
