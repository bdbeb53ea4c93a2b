#include "kernels/cpu/direct_linear.h"

#include "kernels/cpu/simd/kernel_tables.h"
#include "kernels/cpu/simd/linear_table.h"

namespace dpt {
namespace {

using direct::Linear;
using direct::LinearArgs;
using direct::LinearKernels;

class DirectLinear final : public Op {
 public:
  DirectLinear(const LinearDesc& d, const LinearKernels& kernels)
      : linear_{d.batch, d.in, d.out, d.bias, d.relu, d.training && d.input_gradient},
        kernels_(kernels) {}

  bool backward_needs_y() const override { return linear_.relu; }
  bool backward_keeps_dy() const override { return !linear_.relu; }
  void forward(const OpArgs& args) override { kernels_.forward(linear_, unpack(args)); }
  void backward(const OpArgs& args) override { kernels_.backward(linear_, unpack(args)); }
  std::string implementation() const override { return kernels_.name; }
  std::string replaceable_kernel(Pass) const override { return kernels_.name; }

 private:
  static LinearArgs unpack(const OpArgs& a) {
    const ParamArgs &w = a.params[LinearDesc::kWeight], &b = a.params[LinearDesc::kBias];
    return {host(a.x),        host(w.f32),      host(b.f32),
            host(a.y),        host(a.dy),       host(a.dx),
            host(w.gradient), host(b.gradient), a.write == GradWrite::add};
  }

  Linear linear_;
  const LinearKernels& kernels_;
};

}  // namespace

std::unique_ptr<Op> make_direct_linear(const LinearDesc& desc, const CpuFeatures& features) {
  const LinearKernels* kernels = kernel_tables(features).direct_linear;
  if (!kernels || desc.type != DType::f32 || desc.batch < 1) return nullptr;
  return std::make_unique<DirectLinear>(desc, *kernels);
}

}  // namespace dpt
