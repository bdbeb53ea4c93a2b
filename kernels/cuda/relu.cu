// Rectified linear unit on a GPU.
#include "kernels/cuda/ops.h"

#include "kernels/cuda/description.h"
#include "kernels/cuda/runtime/pack.h"

namespace dpt {
namespace {

/// Computes to = gate <= 0 ? 0 : from, so that a NaN gate lets `from` through. In forward, x is
/// both; in backward, the gate is y. The three may be the same memory.
template <class T>
struct ReluBody {
  T* to;
  const T* from;
  const T* gate;

  template <int kCount>
  __device__ void at(std::int64_t i) const {
    const auto values = load_pack<kCount>(from + i), gates = load_pack<kCount>(gate + i);
    Pack<T, kCount> result;
    for (int k = 0; k < kCount; ++k) {
      result.v[k] = to_float(gates.v[k]) <= 0.0F ? T{} : values.v[k];
    }
    store_pack<kCount>(to + i, result);
  }
};

template <class T>
class CudaRelu final : public Op {
 public:
  CudaRelu(const CudaContext& context, const ReluDesc& desc)
      : context_(context), count_(desc.batch * desc.shape.elements()) {}
  bool in_place() const override { return true; }
  bool backward_needs_x() const override { return false; }
  bool backward_keeps_dy() const override { return true; }
  bool gates_dy() const override { return true; }
  void forward(const OpArgs& args) override { run(args.y, args.x, args.x); }
  void backward(const OpArgs& args) override { run(args.dx, args.dy, args.y); }
  std::string implementation() const override { return "own"; }

 private:
  void run(DevPtr to, DevPtr from, DevPtr gate) const {
    constexpr int kCount = 16 / sizeof(T);
    for_each_pack<kCount>(context_, count_, aligned_to(16, to, from, gate),
                          ReluBody<T>{device<T>(to), device<const T>(from), device<const T>(gate)});
  }

  const CudaContext& context_;
  std::int64_t count_;
};

}  // namespace

std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const ReluDesc& desc) {
  check_cuda_desc(context, "relu", desc.type, desc.batch);
  if (desc.type == DType::bf16) return std::make_unique<CudaRelu<Bf16>>(context, desc);
  return std::make_unique<CudaRelu<float>>(context, desc);
}

}  // namespace dpt
