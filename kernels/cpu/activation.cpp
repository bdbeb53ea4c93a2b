// Activation functions on the CPU. Their formulas are in kernels/common/activations.h.
#include "kernels/cpu/ops.h"

#include <algorithm>

#include "kernels/common/bf16.h"
#include "kernels/cpu/check.h"
#include "kernels/cpu/flat.h"
#include "kernels/cpu/parallel.h"

namespace dpt {
namespace {

/// Sets to[i] = f(a[i], b[i]) for i < n. `to` may be `a` or `b`.
template <class F>
void map(float* to, const float* a, const float* b, std::int64_t n, const F& f) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = f(a[i], b[i]);
}
/// Does the same for bf16 numbers, rounding the results. Widening, computing and rounding are loops
/// of their own over blocks that stay in the cache: compilers do not vectorise all in one.
template <class F>
void map(Bf16* to, const Bf16* a, const Bf16* b, std::int64_t n, const F& f) {
  constexpr std::int64_t kBlock = 1024;
  float wide_a[kBlock], wide_b[kBlock];
  for (std::int64_t first = 0; first < n; first += kBlock) {
    const std::int64_t count = std::min(kBlock, n - first);
    for (std::int64_t i = 0; i < count; ++i) wide_a[i] = to_float(a[first + i]);
    if (a != b) {
      for (std::int64_t i = 0; i < count; ++i) wide_b[i] = to_float(b[first + i]);
    }
    map(wide_a, wide_a, a == b ? wide_a : wide_b, count, f);
    cpu_to_bf16(to + first, wide_a, count);
  }
}

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
      map(y + first, x + first, x + first, end - first,
          [this](float value, float) { return formula_.value(value); });
    });
  }

  void backward(const OpArgs& args) override {
    T* dx = host<T>(args.dx);
    const T* dy = host<const T>(args.dy);
    const T* of = host<const T>(Formula::kOfY ? args.y : args.x);
    for_blocks(threads_, count_, [=, this](std::int64_t first, std::int64_t end) {
      map(dx + first, of + first, dy + first, end - first,
          [this](float v, float of_y) { return formula_.gradient(v, of_y); });
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
