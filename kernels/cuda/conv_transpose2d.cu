// A transposed convolution on a GPU, composed of the passes of the convolution that it transposes.
#include "kernels/cuda/ops.h"

#include "kernels/base/divide.h"
#include "kernels/common/conv_transpose.h"
#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/conv/conv_plan.h"
#include "kernels/cuda/description.h"
#include "kernels/cuda/runtime/pack.h"

namespace dpt {
namespace {

/// Adds the bias to y. A pack never spans two pixels.
template <class T>
struct AddBias {
  T* y;
  const float* bias;
  Divider channels;

  template <int kCount>
  __device__ void at(std::int64_t i) const {
    auto values = load_pack<kCount>(y + i);
    const std::uint32_t channel = channels.remainder(static_cast<std::uint32_t>(i));
    for (int k = 0; k < kCount; ++k) {
      store(values.v[k], to_float(values.v[k]) + bias[channel + k]);
    }
    store_pack<kCount>(y + i, values);
  }
};

template <class T>
class CudaConvTranspose2d final : public Op {
 public:
  CudaConvTranspose2d(const CudaContext& context, const ConvTranspose2dDesc& desc)
      : context_(context), d_(desc), y_(plan(Pass::backward_data)) {
    if (!desc.training) return;
    dweight_ = plan(Pass::backward_weights);
    if (desc.input_gradient) dx_ = plan(Pass::forward);
  }

  std::size_t scratch_bytes() const override {
    return d_.training && d_.bias ? column_sums_scratch(context_, rows(), d_.out.c) : 0;
  }
  bool backward_needs_y() const override { return false; }
  bool backward_keeps_dy() const override { return true; }

  // The convolution's input is this operation's y, and its output is x.
  void forward(const OpArgs& args) override {
    ConvArgs conv;
    conv.x = device<void>(args.y);
    conv.y = device<void>(args.x);
    conv.weight = device<const void>(args.params[d_.kWeight].as(d_.type));
    y_->run(conv);
    if (!d_.bias) return;
    constexpr int kCount = 16 / sizeof(T);
    for_each_pack<kCount>(
        context_, rows() * d_.out.c, d_.out.c % kCount == 0 && aligned_to(16, args.y),
        AddBias<T>{device<T>(args.y), device<const float>(args.params[d_.kBias].f32),
                   Divider(d_.out.c)});
  }
  void backward(const OpArgs& args) override {
    ConvArgs conv;
    conv.x = device<void>(args.dy);
    conv.y = device<void>(args.x);
    conv.dweight = device<float>(args.params[d_.kWeight].gradient);
    conv.write = args.write;
    dweight_->run(conv);
    if (d_.bias) {
      column_sums(context_, args.dy, d_.type, rows(), d_.out.c, args.params[d_.kBias].gradient,
                  args.write, args.scratch);
    }
    if (!dx_) return;
    conv.y = device<void>(args.dx);
    conv.weight = device<const void>(args.params[d_.kWeight].as(d_.type));
    dx_->run(conv);
  }

  std::string implementation() const override {
    std::string text = "forward " + y_->described();
    if (dweight_) text += ", weights " + dweight_->described();
    if (dx_) text += ", data " + dx_->described();
    return text;
  }
  std::string replaceable_kernel(Pass pass) const override {
    const auto& plan = pass == Pass::forward ? y_ : pass == Pass::backward_data ? dx_ : dweight_;
    return plan ? plan->name() : std::string();
  }

 private:
  std::unique_ptr<ConvPlan> plan(Pass pass) const {
    return choose_conv_plan(context_, conv_problem(transposed_convolution(d_), pass));
  }
  std::int64_t rows() const { return d_.batch * d_.out.h * d_.out.w; }

  const CudaContext& context_;
  ConvTranspose2dDesc d_;
  std::unique_ptr<ConvPlan> y_, dweight_, dx_;
};

}  // namespace

std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const ConvTranspose2dDesc& desc) {
  check_cuda_desc(context, "a transposed convolution", desc.type, desc.batch);
  check_indices(context, "a transposed convolution", desc.batch * desc.out.elements());
  if (desc.type == DType::bf16) return std::make_unique<CudaConvTranspose2d<Bf16>>(context, desc);
  return std::make_unique<CudaConvTranspose2d<float>>(context, desc);
}

}  // namespace dpt
