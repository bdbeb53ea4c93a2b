// Our own convolutions: which descriptions they take, and the Op around the kernels.
#include "kernels/common/conv_padding.h"
#include "kernels/cpu/check.h"
#include "kernels/cpu/direct.h"
#include "kernels/cpu/direct_conv.h"

namespace dpt {
namespace {

using direct::Conv;
using direct::ConvArgs;
using direct::ConvKernels;
using direct::FusedPool;

/// The fused pooling that the kernels know: 2x2, stride 2, whole windows of real pixels.
bool applies(const Pool2dDesc& pool) {
  const Size2 two{2, 2}, none{0, 0}, one{1, 1};
  const bool plain_average = pool.divisor_override == 0 || pool.divisor_override == 4;
  return pool.kernel == two && pool.stride == two && pool.padding == none && pool.dilation == one &&
         2 * pool.out.h <= pool.in.h && 2 * pool.out.w <= pool.in.w &&
         (pool.kind == PoolKind::max || plain_average);
}

bool applies(const Conv2dDesc& d) {
  return d.type == DType::f32 && d.groups == 1 && d.dilation == Size2{1, 1} && d.batch >= 1 &&
         d.padding.h < d.kernel.h && d.padding.w < d.kernel.w && pads_evenly(d, d.conv_out) &&
         (!d.pool || applies(*d.pool));
}

/// Where ours are faster than oneDNN: what fuses a pool, and channels that fill no whole vectors.
/// On 3x3 kernels over whole vectors of channels oneDNN is as fast or some percent faster.
bool pays(const Conv2dDesc& d) {
  return d.pool || d.in.c % 8 != 0 || d.conv_out.c % 8 != 0;
}

/// Where Winograd's are faster than oneDNN (docs/internals/performance.md): from 32 channels on, on
/// AMD's AVX-512 from 16 on (fewer spend as long on transforms as they save), and with enough tiles
/// to pay for the transform of the weights.
bool winograd_pays(const Conv2dDesc& d, const CpuFeatures& features) {
  const std::int64_t least = features.avx512 && features.amd ? 16 : 32;
  const std::int64_t tiles = d.batch * ((d.out.h + 1) / 2) * ((d.out.w + 1) / 2);
  return d.in.c >= least && d.out.c >= least && tiles >= 32 && tiles >= d.in.c * d.out.c / 2048;
}

Conv numbers(const Conv2dDesc& d) {
  Conv c;
  c.batch = d.batch;
  c.in_h = d.in.h;
  c.in_w = d.in.w;
  c.in_c = d.in.c;
  c.kernel_h = d.kernel.h;
  c.kernel_w = d.kernel.w;
  c.stride_h = d.stride.h;
  c.stride_w = d.stride.w;
  c.pad_h = d.padding.h;
  c.pad_w = d.padding.w;
  c.out_h = d.out.h;
  c.out_w = d.out.w;
  c.out_c = d.out.c;
  c.conv_h = d.pool ? 2 * d.out.h : d.out.h;
  c.conv_w = d.pool ? 2 * d.out.w : d.out.w;
  c.bias = d.bias;
  c.relu = d.relu;
  c.input_gradient = d.training && d.input_gradient;
  if (d.pool) c.pool = d.pool->kind == PoolKind::max ? FusedPool::max : FusedPool::average;
  return c;
}

class OwnConv2d final : public Op {
 public:
  OwnConv2d(const Conv2dDesc& desc, const ConvKernels& kernels)
      : conv_(numbers(desc)), kernels_(kernels), training_(desc.training) {}

  std::size_t scratch_bytes() const override { return kernels_.scratch_bytes(conv_); }
  std::size_t saved_bytes() const override { return training_ ? kernels_.saved_bytes(conv_) : 0; }
  bool backward_needs_y() const override { return conv_.relu && conv_.pool == FusedPool::none; }
  bool backward_keeps_dy() const override { return !conv_.relu; }
  void forward(const OpArgs& args) override { kernels_.forward(conv_, unpack(args)); }
  void backward(const OpArgs& args) override { kernels_.backward(conv_, unpack(args)); }
  std::string implementation() const override { return kernels_.name; }

 private:
  ConvArgs unpack(const OpArgs& a) const {
    return {host(a.x),
            host(a.weight),
            host(a.bias),
            host(a.y),
            host(a.dy),
            host(a.dx),
            host(a.dweight),
            host(a.dbias),
            training_ ? host<std::uint8_t>(a.saved) : nullptr,
            host(a.scratch),
            a.write == GradWrite::add};
  }

  Conv conv_;
  const ConvKernels& kernels_;
  bool training_;
};

}  // namespace

std::unique_ptr<Op> make_direct_conv2d(const Conv2dDesc& desc, const CpuFeatures& features,
                                       Prefer prefer) {
  if (!features.avx2 || !applies(desc)) return nullptr;
  if (prefer == Prefer::fastest && !pays(desc)) return nullptr;
  if (features.avx512) {
    return std::make_unique<OwnConv2d>(desc, direct::conv_kernels_avx512());
  }
  return std::make_unique<OwnConv2d>(desc, direct::conv_kernels_avx2());
}

std::unique_ptr<Op> make_winograd_conv2d(const Conv2dDesc& desc, const CpuFeatures& features,
                                         Prefer prefer) {
  const std::int64_t lanes = features.avx512 ? 16 : 8;
  const bool applies = features.avx2 && desc.type == DType::f32 && desc.groups == 1 && !desc.pool &&
                       desc.kernel == Size2{3, 3} && desc.stride == Size2{1, 1} &&
                       desc.dilation == Size2{1, 1} && desc.padding.h <= 2 && desc.padding.w <= 2 &&
                       desc.batch >= 1 && desc.in.c % lanes == 0 && desc.conv_out.c % lanes == 0;
  if (!applies || (prefer == Prefer::fastest && !winograd_pays(desc, features))) return nullptr;
  if (features.avx512) {
    return std::make_unique<OwnConv2d>(desc, direct::winograd_kernels_avx512());
  }
  return std::make_unique<OwnConv2d>(desc, direct::winograd_kernels_avx2());
}

}  // namespace dpt
