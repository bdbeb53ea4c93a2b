// Activation functions on the CPU. Their formulas are in kernels/common/activations.h.
#include "kernels/cpu/ops.h"

#include "kernels/common/bf16.h"
#include "kernels/cpu/check.h"
#include "kernels/cpu/parallel.h"

namespace dpt {
namespace {

template <class T, class Formula>
class CpuActivation final : public Op {
 public:
  CpuActivation(const ActivationDesc& desc, const Formula& formula, int threads)
      : formula_(formula),
        count_(desc.batch * desc.shape.elements()),
        training_(desc.training),
        threads_(threads) {}
  bool in_place() const override { return Formula::kOfY || !training_; }
  bool backward_needs_x() const override { return !Formula::kOfY; }
  bool backward_needs_y() const override { return Formula::kOfY; }
  bool backward_keeps_dy() const override { return true; }

  void forward(const OpArgs& args) override {
    T* y = host<T>(args.y);
    const T* x = host<const T>(args.x);
    for_blocks(threads_, count_, [=, this](std::int64_t first, std::int64_t end) {
      for (std::int64_t i = first; i < end; ++i) store(y[i], formula_.value(to_float(x[i])));
    });
  }

  void backward(const OpArgs& args) override {
    T* dx = host<T>(args.dx);
    const T* dy = host<const T>(args.dy);
    const T* of = host<const T>(Formula::kOfY ? args.y : args.x);
    for_blocks(threads_, count_, [=, this](std::int64_t first, std::int64_t end) {
      for (std::int64_t i = first; i < end; ++i) {
        store(dx[i], formula_.gradient(to_float(of[i]), to_float(dy[i])));
      }
    });
  }
  std::string implementation() const override { return "own"; }

 private:
  Formula formula_;
  std::int64_t count_;
  bool training_;
  int threads_;
};

}  // namespace

std::unique_ptr<Op> make_cpu_op(const ActivationDesc& desc, const CpuTarget& target) {
  check_cpu_desc("activation", desc.type, desc.batch);
  return std::visit(
      [&](const auto& formula) -> std::unique_ptr<Op> {
        using Formula = std::decay_t<decltype(formula)>;
        if (desc.type == DType::bf16) {
          return std::make_unique<CpuActivation<Bf16, Formula>>(desc, formula, target.threads);
        }
        return std::make_unique<CpuActivation<float, Formula>>(desc, formula, target.threads);
      },
      desc.formula);
}

}  // namespace dpt
