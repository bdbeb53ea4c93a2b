#include "kernels/cpu/own_conv2d.h"

#include <algorithm>

#include "kernels/base/align.h"
#include "kernels/base/divide.h"
#include "kernels/cpu/flat.h"
#include "kernels/cpu/parallel.h"

namespace dpt {

direct::Conv conv_of(const Conv2dDesc& d) {
  direct::Conv c;
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
  c.training = d.training;
  c.input_gradient = d.training && d.input_gradient;
  if (d.pool)
    c.pool = d.pool->kind == PoolKind::max ? direct::FusedPool::max : direct::FusedPool::average;
  return c;
}

namespace {

using direct::Conv;
using direct::ConvKernels;
using direct::FusedPool;

/// A convolution whose batch is divided among the threads of the team.
template <class Value>
class OwnConv2d final : public Op {
 public:
  OwnConv2d(const Conv2dDesc& desc, const ConvKernels<Value>& kernels, int threads)
      : conv_(conv_of(desc)),
        kernels_(kernels),
        type_(desc.type),
        parts_(std::min(conv_.batch, std::int64_t{threads})),
        part_scratch_(aligned(kernels.scratch_bytes(with_batch(ceil_div(conv_.batch, parts_))))) {}

  /// Returns the size of scratch. It holds the kernels' scratch for every part, then the parameter
  /// gradients of all parts except the first.
  std::size_t scratch_bytes() const override {
    const auto parts = static_cast<std::size_t>(parts_);
    return parts * part_scratch_ + (conv_.training ? (parts - 1) * gradient_bytes() : 0);
  }
  std::size_t saved_bytes() const override {
    return conv_.training ? kernels_.saved_bytes(conv_) : 0;
  }
  bool backward_needs_y() const override { return conv_.relu && conv_.pool == FusedPool::none; }
  bool backward_keeps_dy() const override { return !conv_.relu; }
  void forward(const OpArgs& args) override {
    for_parts([&](std::int64_t i) { kernels_.forward(part_of(i), unpack(args, i)); });
  }
  void backward(const OpArgs& args) override {
    for_parts([&](std::int64_t i) { kernels_.backward(part_of(i), unpack(args, i)); });
    const direct::ConvCall<Value> sums = unpack(args, 0);
    for (std::int64_t i = 1; i < parts_; ++i) {
      const direct::ConvCall<Value> part = unpack(args, i);
      cpu_add(sums.dweight, sums.dweight, part.dweight, weights());
      if (conv_.bias) cpu_add(sums.dbias, sums.dbias, part.dbias, conv_.out_c);
    }
  }
  bool backward_rounds_transforms() const override { return kernels_.backward_rounds_transforms; }
  std::string implementation() const override { return kernels_.name; }
  std::string replaceable_kernel(Pass) const override { return kernels_.name; }

 private:
  template <class Body>
  void for_parts(const Body& body) const {
    parallel_for(static_cast<int>(parts_), parts_, body);
  }
  /// Returns the first sample of part `i`.
  std::int64_t first_of(std::int64_t i) const { return conv_.batch * i / parts_; }
  Conv with_batch(std::int64_t batch) const {
    Conv part = conv_;
    part.batch = batch;
    return part;
  }
  Conv part_of(std::int64_t i) const { return with_batch(first_of(i + 1) - first_of(i)); }
  std::int64_t weights() const { return conv_.out_c * conv_.depth(); }
  std::size_t gradient_bytes() const {
    return aligned(static_cast<std::size_t>(weights()) * sizeof(float)) +
           aligned(static_cast<std::size_t>(conv_.out_c) * sizeof(float));
  }

  /// Returns the addresses of part `i`.
  direct::ConvCall<Value> unpack(const OpArgs& a, std::int64_t i) const {
    const ParamArgs &weight = a.params[Conv2dDesc::kWeight], &bias = a.params[Conv2dDesc::kBias];
    const std::int64_t first = first_of(i);
    const std::int64_t x = first * conv_.in_h * conv_.in_w * conv_.in_c;
    const std::int64_t y = first * conv_.out_h * conv_.out_w * conv_.out_c;
    const auto moved = [](DevPtr from, std::int64_t values) {
      return from ? host<Value>(from) + values : nullptr;
    };
    direct::ConvCall<Value> call{moved(a.x, x),
                                 host<Value>(weight.as(type_)),
                                 host(bias.f32),
                                 moved(a.y, y),
                                 moved(a.dy, y),
                                 moved(a.dx, x),
                                 host(weight.gradient),
                                 host(bias.gradient),
                                 nullptr,
                                 host(a.scratch + static_cast<std::size_t>(i) * part_scratch_),
                                 a.write == GradWrite::add};
    if (conv_.training)
      call.saved = host<std::uint8_t>(a.saved + kernels_.saved_bytes(with_batch(first)));
    if (i > 0) {
      const DevPtr own = a.scratch + static_cast<std::size_t>(parts_) * part_scratch_ +
                         static_cast<std::size_t>(i - 1) * gradient_bytes();
      call.dweight = host(own);
      call.dbias = host(own + aligned(static_cast<std::size_t>(weights()) * sizeof(float)));
      call.add = false;
    }
    return call;
  }

  Conv conv_;
  const ConvKernels<Value>& kernels_;
  DType type_;
  std::int64_t parts_;  ///< number of threads that have samples
  std::size_t part_scratch_;
};

}  // namespace

std::unique_ptr<Op> make_own_conv2d(const Conv2dDesc& desc, const ConvKernels<float>* fp32,
                                    const ConvKernels<Bf16>* bf16, int threads) {
  if (desc.type == DType::bf16) {
    return bf16 ? std::make_unique<OwnConv2d<Bf16>>(desc, *bf16, threads) : nullptr;
  }
  return fp32 ? std::make_unique<OwnConv2d<float>>(desc, *fp32, threads) : nullptr;
}

}  // namespace dpt
