#include "kernels/cpu/ops.h"

#include "kernels/cpu/check.h"
#include "kernels/cpu/direct_linear.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/relu.h"

namespace dpt {
namespace {

class CpuLinear final : public Op {
 public:
  CpuLinear(const LinearDesc& desc, int threads)
      : d_(desc), threads_(threads), passes_(desc, [&](Pass pass) {
          return onednn::make_linear(desc, pass, desc.relu, threads);
        }) {}

  std::size_t scratch_bytes() const override { return passes_.scratch_bytes(); }
  bool backward_needs_y() const override { return d_.relu; }
  bool backward_keeps_dy() const override { return !d_.relu; }

  void forward(const OpArgs& args) override {
    const DevPtr weight = args.params[d_.kWeight].as(d_.type), bias = args.params[d_.kBias].f32;
    passes_.forward.run({args.x, args.y, weight, bias, args.scratch});
  }

  void backward(const OpArgs& args) override {
    if (d_.relu) {
      relu_backward(d_.type, args.dy, args.dy, args.y, d_.batch * d_.out, threads_);
    }
    const ParamArgs &weight = args.params[d_.kWeight], &bias = args.params[d_.kBias];
    passes_.weights->run(
        {args.x, args.dy, weight.gradient, bias.gradient, args.scratch, args.write});
    if (passes_.data) {
      passes_.data->run({args.dx, args.dy, weight.as(d_.type), {}, args.scratch});
    }
  }

  std::string implementation() const override { return passes_.implementation(); }

 private:
  LinearDesc d_;
  int threads_;
  onednn::Passes passes_;
};

}  // namespace

/// Creates a direct kernel if one applies, otherwise oneDNN's.
std::unique_ptr<Op> make_cpu_op(const LinearDesc& desc, const CpuTarget& target) {
  check_cpu_desc("a linear layer", desc.type, desc.batch, desc.tf32);
  if (target.threads == 1) {
    if (auto direct = make_direct_linear(desc, target.features)) return direct;
  }
  return std::make_unique<CpuLinear>(desc, target.threads);
}

}  // namespace dpt
