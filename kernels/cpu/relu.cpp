#include "kernels/cpu/relu.h"

#include <algorithm>

#include "kernels/cpu/check.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector.h"

namespace dpt {
namespace {

class CpuRelu final : public Op {
 public:
  CpuRelu(const ReluDesc& desc, int threads)
      : count_(desc.batch * desc.shape.elements()), threads_(threads) {}
  bool in_place() const override { return true; }
  bool backward_needs_x() const override { return false; }
  void forward(const OpArgs& args) override {
    relu_forward(host(args.y), host(args.x), count_, threads_);
  }
  void backward(const OpArgs& args) override {
    relu_backward(host(args.dx), host(args.dy), host(args.y), count_, threads_);
  }
  std::string implementation() const override { return "own"; }

 private:
  std::int64_t count_;
  int threads_;
};

/// Elements that one call of a parallel loop handles: enough to be worth handing out.
constexpr std::int64_t kBlock = 4096;

/// Calls run(first, end) for blocks of `count` elements.
template <class Run>
void for_blocks(int threads, std::int64_t count, const Run& run) {
  parallel_for(threads, (count + kBlock - 1) / kBlock, [&](std::int64_t block) {
    run(block * kBlock, std::min(count, (block + 1) * kBlock));
  });
}

}  // namespace

void relu_forward(float* y, const float* x, std::int64_t count, int threads) {
  for_blocks(threads, count, [=](std::int64_t first, std::int64_t end) {
    std::int64_t i = first;
    for (; i + 4 <= end; i += 4) {
      const auto value = load<Float4>(x + i);
      store(y + i, value <= 0.0F ? Float4{} : value);
    }
    for (; i < end; ++i) y[i] = x[i] <= 0.0F ? 0.0F : x[i];
  });
}

void relu_backward(float* dx, const float* dy, const float* y, std::int64_t count, int threads) {
  for_blocks(threads, count, [=](std::int64_t first, std::int64_t end) {
    std::int64_t i = first;
    for (; i + 4 <= end; i += 4) {
      store(dx + i, load<Float4>(y + i) <= 0.0F ? Float4{} : load<Float4>(dy + i));
    }
    for (; i < end; ++i) dx[i] = y[i] <= 0.0F ? 0.0F : dy[i];
  });
}

std::unique_ptr<Op> make_cpu_relu(const ReluDesc& desc, int threads) {
  check_cpu_desc("relu", desc.type, desc.batch);
  return std::make_unique<CpuRelu>(desc, threads);
}

}  // namespace dpt
