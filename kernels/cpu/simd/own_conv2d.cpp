#include "kernels/cpu/simd/own_conv2d.h"

namespace dpt {
namespace {

using direct::Conv;
using direct::ConvKernels;
using direct::FusedPool;

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

template <class Value>
class OwnConv2d final : public Op {
 public:
  OwnConv2d(const Conv2dDesc& desc, const ConvKernels<Value>& kernels)
      : conv_(numbers(desc)), kernels_(kernels), type_(desc.type), training_(desc.training) {}

  std::size_t scratch_bytes() const override { return kernels_.scratch_bytes(conv_); }
  std::size_t saved_bytes() const override { return training_ ? kernels_.saved_bytes(conv_) : 0; }
  bool backward_needs_y() const override { return conv_.relu && conv_.pool == FusedPool::none; }
  bool backward_keeps_dy() const override { return !conv_.relu; }
  void forward(const OpArgs& args) override { kernels_.forward(conv_, unpack(args)); }
  void backward(const OpArgs& args) override { kernels_.backward(conv_, unpack(args)); }
  std::string implementation() const override { return kernels_.name; }
  std::string replaceable_kernel(Pass) const override { return kernels_.name; }

 private:
  direct::ConvCall<Value> unpack(const OpArgs& a) const {
    const ParamArgs &weight = a.params[Conv2dDesc::kWeight], &bias = a.params[Conv2dDesc::kBias];
    return {host<Value>(a.x),
            host<Value>(weight.as(type_)),
            host(bias.f32),
            host<Value>(a.y),
            host<Value>(a.dy),
            host<Value>(a.dx),
            host(weight.gradient),
            host(bias.gradient),
            training_ ? host<std::uint8_t>(a.saved) : nullptr,
            host(a.scratch),
            a.write == GradWrite::add};
  }

  Conv conv_;
  const ConvKernels<Value>& kernels_;
  DType type_;
  bool training_;
};

}  // namespace

std::unique_ptr<Op> make_own_conv2d(const Conv2dDesc& desc, const ConvKernels<float>& kernels) {
  return std::make_unique<OwnConv2d<float>>(desc, kernels);
}
std::unique_ptr<Op> make_own_conv2d(const Conv2dDesc& desc, const ConvKernels<Bf16>& kernels) {
  return std::make_unique<OwnConv2d<Bf16>>(desc, kernels);
}

}  // namespace dpt
