#include "kernels/cpu/relu.h"

#include "kernels/common/bf16.h"
#include "kernels/cpu/check.h"
#include "kernels/cpu/flat.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/simd/bf16_loops.h"
#include "kernels/cpu/vector.h"

namespace dpt {
namespace {

class CpuRelu final : public Op {
 public:
  CpuRelu(const ReluDesc& desc, int threads)
      : type_(desc.type), count_(desc.batch * desc.shape.elements()), threads_(threads) {}
  bool in_place() const override { return true; }
  bool backward_needs_x() const override { return false; }
  bool backward_keeps_dy() const override { return true; }
  void forward(const OpArgs& args) override {
    relu_forward(type_, args.y, args.x, count_, threads_);
  }
  void backward(const OpArgs& args) override {
    relu_backward(type_, args.dx, args.dy, args.y, count_, threads_);
  }
  std::string implementation() const override { return "own"; }

 private:
  DType type_;
  std::int64_t count_;
  int threads_;
};

void forward(float* y, const float* x, std::int64_t count, int threads) {
  for_blocks(threads, count, [=](std::int64_t first, std::int64_t end) {
    std::int64_t i = first;
    for (; i + 4 <= end; i += 4) {
      const auto value = load<Float4>(x + i);
      store(y + i, value <= 0.0F ? Float4{} : value);
    }
    for (; i < end; ++i) y[i] = x[i] <= 0.0F ? 0.0F : x[i];
  });
}
void forward(Bf16* y, const Bf16* x, std::int64_t count, int threads) {
  for_blocks(threads, count, [=](std::int64_t first, std::int64_t end) {
    if (const Bf16Loops* wide = bf16_loops()) return wide->relu(y + first, x + first, end - first);
    for (std::int64_t i = first; i < end; ++i) y[i] = to_float(x[i]) <= 0.0F ? Bf16{} : x[i];
  });
}

void backward(float* dx, const float* dy, const float* y, std::int64_t count, int threads) {
  for_blocks(threads, count, [=](std::int64_t first, std::int64_t end) {
    std::int64_t i = first;
    for (; i + 4 <= end; i += 4) {
      store(dx + i, load<Float4>(y + i) <= 0.0F ? Float4{} : load<Float4>(dy + i));
    }
    for (; i < end; ++i) dx[i] = y[i] <= 0.0F ? 0.0F : dy[i];
  });
}
void backward(Bf16* dx, const Bf16* dy, const Bf16* y, std::int64_t count, int threads) {
  for_blocks(threads, count, [=](std::int64_t first, std::int64_t end) {
    if (const Bf16Loops* wide = bf16_loops())
      return wide->mask(dx + first, dy + first, y + first, end - first);
    for (std::int64_t i = first; i < end; ++i) dx[i] = to_float(y[i]) <= 0.0F ? Bf16{} : dy[i];
  });
}

}  // namespace

void relu_forward(DType type, DevPtr y, DevPtr x, std::int64_t count, int threads) {
  if (type == DType::bf16) {
    forward(host<Bf16>(y), host<const Bf16>(x), count, threads);
  } else {
    forward(host(y), host(x), count, threads);
  }
}

void relu_backward(DType type, DevPtr dx, DevPtr dy, DevPtr y, std::int64_t count, int threads) {
  if (type == DType::bf16) {
    backward(host<Bf16>(dx), host<const Bf16>(dy), host<const Bf16>(y), count, threads);
  } else {
    backward(host(dx), host(dy), host(y), count, threads);
  }
}

std::unique_ptr<Op> make_cpu_op(const ReluDesc& desc, const CpuTarget& target) {
  check_cpu_desc("relu", desc.type, desc.batch);
  return std::make_unique<CpuRelu>(desc, target.threads);
}

}  // namespace dpt
