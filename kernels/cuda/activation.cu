// Activation functions on a GPU. Their formulas are in kernels/common/activations.h.
#include "kernels/cuda/ops.h"

#include "kernels/cuda/description.h"
#include "kernels/cuda/runtime/pack.h"

namespace dpt {
namespace {

/// Computes y, which may be x.
template <class T, class Formula>
struct ActivationForward {
  T* y;
  const T* x;
  Formula formula;

  template <int kCount>
  __device__ void at(std::int64_t i) const {
    auto values = load_pack<kCount>(x + i);
    for (int k = 0; k < kCount; ++k) store(values.v[k], formula.value(to_float(values.v[k])));
    store_pack<kCount>(y + i, values);
  }
};

/// Computes dx, which may be dy. `of` is y or x.
template <class T, class Formula>
struct ActivationBackward {
  T* dx;
  const T* dy;
  const T* of;
  Formula formula;

  template <int kCount>
  __device__ void at(std::int64_t i) const {
    const auto points = load_pack<kCount>(of + i);
    auto values = load_pack<kCount>(dy + i);
    for (int k = 0; k < kCount; ++k) {
      store(values.v[k], formula.gradient(to_float(points.v[k]), to_float(values.v[k])));
    }
    store_pack<kCount>(dx + i, values);
  }
};

template <class T, class Formula>
class CudaActivation final : public Op {
 public:
  CudaActivation(const CudaContext& context, const ActivationDesc& desc, const Formula& formula)
      : context_(context),
        formula_(formula),
        count_(desc.batch * desc.shape.elements()),
        training_(desc.training) {}
  bool in_place() const override { return Formula::kOfY || !training_; }
  bool backward_needs_x() const override { return !Formula::kOfY; }
  bool backward_needs_y() const override { return Formula::kOfY; }
  bool backward_keeps_dy() const override { return true; }

  void forward(const OpArgs& args) override {
    for_each_pack<kCount>(
        context_, count_, aligned_to(16, args.y, args.x),
        ActivationForward<T, Formula>{device<T>(args.y), device<const T>(args.x), formula_});
  }
  void backward(const OpArgs& args) override {
    const DevPtr of = Formula::kOfY ? args.y : args.x;
    for_each_pack<kCount>(
        context_, count_, aligned_to(16, args.dx, args.dy, of),
        ActivationBackward<T, Formula>{device<T>(args.dx), device<const T>(args.dy),
                                       device<const T>(of), formula_});
  }
  std::string implementation() const override { return "own"; }

 private:
  static constexpr int kCount = 16 / sizeof(T);
  const CudaContext& context_;
  Formula formula_;
  std::int64_t count_;
  bool training_;
};

}  // namespace

std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const ActivationDesc& desc) {
  check_cuda_desc(context, "activation", desc.type, desc.batch);
  return std::visit(
      [&](const auto& formula) -> std::unique_ptr<Op> {
        using Formula = std::decay_t<decltype(formula)>;
        if (desc.type == DType::bf16) {
          return std::make_unique<CudaActivation<Bf16, Formula>>(context, desc, formula);
        }
        return std::make_unique<CudaActivation<float, Formula>>(context, desc, formula);
      },
      desc.formula);
}

}  // namespace dpt
