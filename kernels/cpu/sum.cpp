#include "kernels/cpu/ops.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>

#include "kernels/base/divide.h"
#include "kernels/common/bf16.h"
#include "kernels/cpu/check.h"
#include "kernels/cpu/flat.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/relu.h"
#include "kernels/cpu/simd/bf16_loops.h"
#include "kernels/cpu/vector.h"

namespace dpt {
namespace {

/// Number of elements that one iteration of the parallel loop handles: enough to justify a thread.
constexpr std::int64_t kSumBlock = 4096;

template <class T>
using Inputs = std::array<const T*, kMaxInputs>;

/// Sets elements [i, end) of y to the sum of the inputs. NaN stays NaN. y may be one of the inputs.
template <class T>
void sum_singly(T* y, const Inputs<T>& x, int inputs, bool relu, std::int64_t i, std::int64_t end) {
  for (; i < end; ++i) {
    float total = to_float(x[0][i]);
    for (int k = 1; k < inputs; ++k) total += to_float(x[k][i]);
    store(y[i], relu && total <= 0.0F ? 0.0F : total);
  }
}

void sum_block(Bf16* y, const Inputs<Bf16>& x, int inputs, bool relu, std::int64_t i,
               std::int64_t end) {
  const Bf16Loops* wide = bf16_loops();
  if (!wide) return sum_singly(y, x, inputs, relu, i, end);
  Inputs<Bf16> from = x;
  for (int k = 0; k < inputs; ++k) from[k] += i;
  wide->sum(y + i, from.data(), inputs, relu, end - i);
}
void sum_block(float* y, const Inputs<float>& x, int inputs, bool relu, std::int64_t i,
               std::int64_t end) {
  for (; i + 4 <= end; i += 4) {
    auto total = load<Float4>(x[0] + i);
    for (int k = 1; k < inputs; ++k) total += load<Float4>(x[k] + i);
    store(y + i, relu ? (total <= 0.0F ? Float4{} : total) : total);
  }
  sum_singly(y, x, inputs, relu, i, end);
}

class CpuSum final : public Op {
 public:
  CpuSum(const SumDesc& desc, int threads)
      : desc_(desc), count_(desc.batch * desc.shape.elements()), threads_(threads) {}
  bool in_place() const override { return true; }
  bool backward_needs_x() const override { return false; }
  bool backward_needs_y() const override { return desc_.relu; }
  bool backward_keeps_dy() const override { return true; }
  bool passes_dy() const override { return !desc_.relu; }

  void forward(const OpArgs& args) override {
    if (desc_.type == DType::bf16) {
      run<Bf16>(args);
    } else {
      run<float>(args);
    }
  }
  void backward(const OpArgs& args) override {
    if (desc_.relu) {
      relu_backward(desc_.type, args.dx, args.dy, args.y, count_, threads_);
    } else if (args.dx.address != args.dy.address) {
      std::memcpy(host<void>(args.dx), host<void>(args.dy),
                  static_cast<std::size_t>(count_) * size_of(desc_.type));
    }
  }
  std::string implementation() const override { return "own"; }

 private:
  template <class T>
  void run(const OpArgs& args) const {
    Inputs<T> x = {host<const T>(args.x)};
    for (int k = 1; k < desc_.inputs; ++k) x[k] = host<const T>(args.more_x[k - 1]);
    T* y = host<T>(args.y);
    parallel_for(threads_, ceil_div(count_, kSumBlock), [&](std::int64_t block) {
      const std::int64_t first = block * kSumBlock;
      sum_block(y, x, desc_.inputs, desc_.relu, first, std::min(count_, first + kSumBlock));
    });
  }

  SumDesc desc_;
  std::int64_t count_;
  int threads_;
};

}  // namespace

std::unique_ptr<Op> make_cpu_op(const SumDesc& desc, const CpuTarget& target) {
  check_cpu_desc("sum", desc.type, desc.batch);
  assert(desc.inputs >= 2 && desc.inputs <= kMaxInputs);
  return std::make_unique<CpuSum>(desc, target.threads);
}

}  // namespace dpt
