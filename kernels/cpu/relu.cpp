#include "kernels/cpu/relu.h"

#include "kernels/cpu/check.h"

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

}  // namespace

void relu_forward(float* y, const float* x, std::int64_t count, int threads) {
#pragma omp parallel for simd num_threads(threads) if (threads > 1) schedule(static)
  for (std::int64_t i = 0; i < count; ++i) y[i] = x[i] <= 0.0F ? 0.0F : x[i];
}

void relu_backward(float* dx, const float* dy, const float* y, std::int64_t count, int threads) {
#pragma omp parallel for simd num_threads(threads) if (threads > 1) schedule(static)
  for (std::int64_t i = 0; i < count; ++i) dx[i] = y[i] <= 0.0F ? 0.0F : dy[i];
}

std::unique_ptr<Op> make_cpu_relu(const ReluDesc& desc, int threads) {
  check_cpu_desc("relu", desc.type, desc.batch);
  return std::make_unique<CpuRelu>(desc, threads);
}

}  // namespace dpt
