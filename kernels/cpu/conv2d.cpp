#include "kernels/cpu/ops.h"

#include <algorithm>

#include "kernels/base/align.h"
#include "kernels/cpu/check.h"
#include "kernels/cpu/direct_conv2d.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/relu.h"
#include "kernels/cpu/winograd_conv2d.h"

namespace dpt {
namespace {

/// A convolution, optionally with a fused pool. With a pool, the convolution's output z (batch,
/// conv_out) is an intermediate. Max pooling commutes with ReLU, so ReLU and its mask are applied
/// to the small pooled y, and z is only in scratch. Average pooling needs z's signs in backward, so
/// z stays in `saved`, after ReLU.
class CpuConv2d final : public Op {
 public:
  CpuConv2d(const Conv2dDesc& desc, const CpuTarget& target)
      : d_(desc),
        threads_(target.threads),
        relu_behind_pool_(desc.relu && desc.pool && desc.pool->kind == PoolKind::max),
        keep_z_(desc.training && desc.relu && desc.pool && !relu_behind_pool_),
        passes_(desc, [&](Pass pass) {
          return onednn::make_convolution(desc, pass, desc.relu && !relu_behind_pool_,
                                          target.threads);
        }) {
    if (desc.pool) pool_ = make_cpu_op(*desc.pool, target);
  }

  std::size_t scratch_bytes() const override {
    const std::size_t bytes = passes_.scratch_bytes();
    // If there is a pool, scratch begins with z or its gradient.
    return pool_ ? z_bytes() + std::max(bytes, pool_->scratch_bytes()) : bytes;
  }
  std::size_t saved_bytes() const override {
    const std::size_t pool = pool_ ? aligned(pool_->saved_bytes()) : 0;
    return pool + (keep_z_ ? z_bytes() : 0);
  }
  bool backward_needs_y() const override {
    if (!pool_) return d_.relu;
    return relu_behind_pool_ || pool_->backward_needs_y();
  }
  bool backward_keeps_dy() const override { return pool_ ? !relu_behind_pool_ : !d_.relu; }

  void forward(const OpArgs& args) override {
    const DevPtr weight = args.params[d_.kWeight].as(d_.type), bias = args.params[d_.kBias].f32;
    if (!pool_) {
      passes_.forward.run({args.x, args.y, weight, bias, args.scratch});
      return;
    }
    const DevPtr z = keep_z_ ? args.saved + aligned(pool_->saved_bytes()) : args.scratch;
    const DevPtr rest = args.scratch + z_bytes();
    passes_.forward.run({args.x, z, weight, bias, rest});
    OpArgs pool = args;
    pool.x = z;
    pool.scratch = rest;
    pool_->forward(pool);
    if (relu_behind_pool_) relu_forward(d_.type, args.y, args.y, y_count(), threads_);
  }

  void backward(const OpArgs& args) override {
    DevPtr dz = args.dy, rest = args.scratch;
    if (pool_) {
      if (relu_behind_pool_) mask(args.dy, args.y, y_count());
      dz = args.scratch;
      rest = rest + z_bytes();
      OpArgs pool = args;
      pool.dx = dz;
      pool.scratch = rest;
      pool_->backward(pool);
      if (keep_z_) mask(dz, args.saved + aligned(pool_->saved_bytes()), z_count());
    } else if (d_.relu) {
      mask(dz, args.y, y_count());
    }
    const ParamArgs &weight = args.params[d_.kWeight], &bias = args.params[d_.kBias];
    passes_.weights->run({args.x, dz, weight.gradient, bias.gradient, rest, args.write});
    if (passes_.data) passes_.data->run({args.dx, dz, weight.as(d_.type), {}, rest});
  }

  std::string implementation() const override {
    return passes_.implementation() + (pool_ ? ", pool " + pool_->implementation() : "");
  }

 private:
  std::int64_t y_count() const { return d_.batch * d_.out.elements(); }
  std::int64_t z_count() const { return d_.batch * d_.conv_out.elements(); }
  std::size_t z_bytes() const {
    return aligned(static_cast<std::size_t>(z_count()) * size_of(d_.type));
  }
  void mask(DevPtr gradient, DevPtr output, std::int64_t count) const {
    relu_backward(d_.type, gradient, gradient, output, count, threads_);
  }

  Conv2dDesc d_;
  int threads_;
  bool relu_behind_pool_, keep_z_;
  onednn::Passes passes_;
  std::unique_ptr<Op> pool_;
};

}  // namespace

/// Creates a Winograd or direct kernel for the whole description if one applies, otherwise oneDNN's
/// convolution followed by dpt's pooling.
std::unique_ptr<Op> make_cpu_op(const Conv2dDesc& desc, const CpuTarget& target) {
  check_cpu_desc("a convolution", desc.type, desc.batch, desc.tf32);
  if (auto winograd = make_winograd_conv2d(desc, target)) return winograd;
  if (auto direct = make_direct_conv2d(desc, target)) return direct;
  return std::make_unique<CpuConv2d>(desc, target);
}

}  // namespace dpt
