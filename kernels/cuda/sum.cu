// Elementwise sum of activations on a GPU.
#include "kernels/cuda/ops.h"

#include <cassert>

#include "kernels/cuda/description.h"
#include "kernels/cuda/runtime/pack.h"

namespace dpt {
namespace {

/// y may be the same memory as one of the inputs.
template <class T>
struct SumBody {
  T* y;
  const T* x[kMaxInputs];
  int inputs;
  bool relu;

  template <int kCount>
  __device__ void at(std::int64_t i) const {
    float total[kCount] = {};
#pragma unroll
    for (int n = 0; n < kMaxInputs; ++n) {
      if (n >= inputs) break;
      const auto values = load_pack<kCount>(x[n] + i);
      for (int k = 0; k < kCount; ++k) {
        total[k] = n == 0 ? to_float(values.v[k]) : total[k] + to_float(values.v[k]);
      }
    }
    Pack<T, kCount> result;
    for (int k = 0; k < kCount; ++k) {
      store(result.v[k], relu && total[k] <= 0.0F ? 0.0F : total[k]);
    }
    store_pack<kCount>(y + i, result);
  }
};

template <class T>
class CudaSum final : public Op {
 public:
  CudaSum(const CudaContext& context, const SumDesc& desc)
      : context_(context), desc_(desc), count_(desc.batch * desc.shape.elements()) {
    if (!desc.relu) return;
    ReluDesc relu;
    relu.batch = desc.batch;
    relu.shape = desc.shape;
    relu.type = desc.type;
    relu_ = make_cuda_op(context, relu);
  }
  bool in_place() const override { return true; }
  bool backward_needs_x() const override { return false; }
  bool backward_needs_y() const override { return desc_.relu; }
  bool backward_keeps_dy() const override { return true; }
  bool passes_dy() const override { return !desc_.relu; }
  bool gates_dy() const override { return desc_.relu; }

  void forward(const OpArgs& args) override {
    SumBody<T> body = {device<T>(args.y), {device<const T>(args.x)}, desc_.inputs, desc_.relu};
    bool aligned = aligned_to(16, args.y, args.x);
    for (int n = 1; n < desc_.inputs; ++n) {
      body.x[n] = device<const T>(args.more_x[n - 1]);
      aligned = aligned && aligned_to(16, args.more_x[n - 1]);
    }
    for_each_pack<16 / sizeof(T)>(context_, count_, aligned, body);
  }
  void backward(const OpArgs& args) override {
    if (relu_) return relu_->backward(args);
    if (args.dx.address == args.dy.address) return;
    cuda_check(cudaMemcpyAsync(device<T>(args.dx), device<const T>(args.dy),
                               static_cast<std::size_t>(count_) * sizeof(T),
                               cudaMemcpyDeviceToDevice, context_.stream),
               "cudaMemcpyAsync");
  }
  std::string implementation() const override { return "own"; }

 private:
  const CudaContext& context_;
  SumDesc desc_;
  std::int64_t count_;
  std::unique_ptr<Op> relu_;
};

}  // namespace

std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const SumDesc& desc) {
  check_cuda_desc(context, "sum", desc.type, desc.batch);
  assert(desc.inputs >= 2 && desc.inputs <= kMaxInputs);
  if (desc.type == DType::bf16) return std::make_unique<CudaSum<Bf16>>(context, desc);
  return std::make_unique<CudaSum<float>>(context, desc);
}

}  // namespace dpt
