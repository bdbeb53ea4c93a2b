#include "kernels/cpu/ops.h"

#include <algorithm>
#include <optional>

#include "kernels/cpu/check.h"
#include "kernels/cpu/direct.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/relu.h"

namespace dpt {
namespace {

using onednn::Pass;
using onednn::Primitive;

class CpuLinear final : public Op {
 public:
  CpuLinear(const LinearDesc& desc, int threads)
      : d_(desc),
        threads_(threads),
        forward_(onednn::make_linear(desc, Pass::forward, desc.relu, threads)) {
    if (!desc.training) return;
    backward_weights_ = onednn::make_linear(desc, Pass::backward_weights, false, threads);
    if (desc.input_gradient) {
      backward_data_ = onednn::make_linear(desc, Pass::backward_data, false, threads);
    }
  }

  std::size_t scratch_bytes() const override {
    std::size_t bytes = forward_.scratch_bytes();
    if (backward_weights_) bytes = std::max(bytes, backward_weights_->scratch_bytes());
    if (backward_data_) bytes = std::max(bytes, backward_data_->scratch_bytes());
    return bytes;
  }
  bool backward_needs_y() const override { return d_.relu; }
  bool backward_keeps_dy() const override { return !d_.relu; }

  void forward(const OpArgs& args) override {
    forward_.run({args.x, args.y, args.weight, args.bias, args.scratch});
  }

  void backward(const OpArgs& args) override {
    if (d_.relu) {
      relu_backward(d_.type, args.dy, args.dy, args.y, d_.batch * d_.out, threads_);
    }
    backward_weights_->run({args.x, args.dy, args.dweight, args.dbias, args.scratch, args.write});
    if (backward_data_) backward_data_->run({args.dx, args.dy, args.weight, {}, args.scratch});
  }

  std::string implementation() const override {
    std::string text = "forward " + forward_.implementation();
    if (backward_weights_) text += ", weights " + backward_weights_->implementation();
    if (backward_data_) text += ", data " + backward_data_->implementation();
    return text;
  }

 private:
  LinearDesc d_;
  int threads_;
  Primitive forward_;
  std::optional<Primitive> backward_weights_, backward_data_;
};

}  // namespace

/// A direct kernel where one applies, else oneDNN.
std::unique_ptr<Op> make_cpu_op(const LinearDesc& desc, int threads) {
  check_cpu_desc("a linear layer", desc.type, desc.batch, desc.tf32);
  if (threads == 1) {
    if (auto direct = make_direct_linear(desc, CpuFeatures::detect())) return direct;
  }
  return std::make_unique<CpuLinear>(desc, threads);
}

}  // namespace dpt
