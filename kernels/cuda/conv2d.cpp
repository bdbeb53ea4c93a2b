// Convolution with what is fused behind it, out of plans for its three passes, pooling and column
// sums.
#include "kernels/cuda/conv2d.h"

#include <algorithm>

#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/conv_plan.h"
#include "kernels/cuda/description.h"
#include "kernels/cuda/pool2d.h"
#include "kernels/cuda/relu.h"

namespace dpt {
namespace {

std::size_t aligned(std::size_t bytes) {
  return (bytes + 255) / 256 * 256;
}

ConvProblem problem_of(const Conv2dDesc& d, ConvPass pass) {
  ConvProblem problem;
  problem.pass = pass;
  problem.batch = d.batch;
  problem.in = d.in;
  problem.out = d.conv_out;
  problem.kernel = d.kernel;
  problem.stride = d.stride;
  problem.padding = d.padding;
  problem.dilation = d.dilation;
  problem.groups = d.groups;
  problem.type = d.type;
  problem.tf32 = d.type == DType::f32 && d.tf32;
  problem.bias = d.bias && pass != ConvPass::backward_data;
  problem.relu = d.relu && pass == ConvPass::forward;
  return problem;
}

/// The convolution's own output z (batch, conv_out), behind ReLU, is y itself without a pool. With
/// one it lies in `saved` if the pool's backward reads it and else in scratch, where backward later
/// puts its gradient.
class CudaConv2d final : public Op {
 public:
  CudaConv2d(const CudaContext& context, const Conv2dDesc& desc)
      : context_(context), d_(desc), forward_(plan(ConvPass::forward)) {
    if (desc.pool) {
      pool_ = make_cuda_pool2d(context, *desc.pool, desc.relu);
      keep_z_ = desc.training && pool_->backward_needs_x();
    } else if (desc.relu && desc.training) {
      ReluDesc relu;
      relu.batch = desc.batch;
      relu.shape = desc.out;
      relu.type = desc.type;
      relu_ = make_cuda_relu(context, relu);
    }
    if (!desc.training) return;
    backward_weights_ = plan(ConvPass::backward_weights);
    if (desc.input_gradient) backward_data_ = plan(ConvPass::backward_data);
  }

  std::size_t scratch_bytes() const override {
    std::size_t bytes = pool_ ? pool_->scratch_bytes() : 0;
    if (sums_bias()) bytes = std::max(bytes, column_sums_scratch(context_, rows(), d_.conv_out.c));
    // z or its gradient comes first.
    return bytes + (pool_ ? z_bytes() : 0);
  }
  std::size_t saved_bytes() const override {
    return (pool_ ? aligned(pool_->saved_bytes()) : 0) + (keep_z_ ? z_bytes() : 0);
  }
  bool backward_needs_y() const override { return pool_ ? pool_->backward_needs_y() : d_.relu; }

  void forward(const OpArgs& args) override {
    const DevPtr z = !pool_ ? args.y : keep_z_ ? kept_z(args) : args.scratch;
    ConvArgs conv;
    conv.x = device<void>(args.x);
    conv.y = device<void>(z);
    conv.weight = device<const void>(args.weight);
    conv.bias = device<const float>(args.bias);
    forward_->run(conv);
    if (!pool_) return;
    OpArgs pool = args;
    pool.x = z;
    pool.scratch = args.scratch + z_bytes();
    pool_->forward(pool);
  }

  void backward(const OpArgs& args) override {
    DevPtr dz = args.dy, rest = args.scratch;
    if (pool_) {
      dz = args.scratch;
      rest = rest + z_bytes();
      OpArgs pool = args;
      pool.x = keep_z_ ? kept_z(args) : DevPtr();
      pool.dx = dz;
      pool.scratch = rest;
      pool_->backward(pool);
    } else if (relu_) {
      OpArgs relu;
      relu.y = args.y;
      relu.dy = relu.dx = dz;  // dy may be clobbered.
      relu_->backward(relu);
    }
    ConvArgs conv;
    conv.x = device<void>(args.x);
    conv.y = device<void>(dz);
    conv.dweight = device<float>(args.dweight);
    conv.dbias = device<float>(args.dbias);
    conv.write = args.write;
    backward_weights_->run(conv);
    if (sums_bias()) {
      column_sums(context_, dz, d_.type, rows(), d_.conv_out.c, args.dbias, args.write, rest);
    }
    if (!backward_data_) return;
    conv.x = device<void>(args.dx);
    conv.weight = device<const void>(args.weight);
    backward_data_->run(conv);
  }

  std::string implementation() const override {
    std::string text = "forward " + forward_->name();
    if (backward_weights_) text += ", weights " + backward_weights_->name();
    if (backward_data_) text += ", data " + backward_data_->name();
    if (pool_) text += ", pool " + pool_->implementation();
    return text;
  }

 private:
  std::unique_ptr<ConvPlan> plan(ConvPass pass) const {
    return choose_conv_plan(context_, problem_of(d_, pass));
  }
  bool sums_bias() const {
    return d_.bias && backward_weights_ && !backward_weights_->gives_dbias();
  }
  std::int64_t rows() const { return d_.batch * d_.conv_out.h * d_.conv_out.w; }
  std::size_t z_bytes() const {
    return aligned(static_cast<std::size_t>(rows() * d_.conv_out.c) * size_of(d_.type));
  }
  DevPtr kept_z(const OpArgs& args) const { return args.saved + aligned(pool_->saved_bytes()); }

  const CudaContext& context_;
  Conv2dDesc d_;
  bool keep_z_ = false;
  std::unique_ptr<ConvPlan> forward_, backward_weights_, backward_data_;
  std::unique_ptr<Op> pool_, relu_;
};

/// Convolution, ReLU and pooling as one kernel, whose backward passes read the pooled gradient: the
/// convolution's own output, the largest tensor of such a layer, never lies in memory.
class PooledConv2d final : public Op {
 public:
  /// Null where a kernel of ours cannot do it, or another way is better.
  static std::unique_ptr<Op> make(const CudaContext& context, const Conv2dDesc& desc) {
    const std::optional<ConvPool> pool = pool_inside(desc);
    const auto problem = [&](ConvPass pass) {
      ConvProblem made = problem_of(desc, pass);
      made.pool = pool;
      return made;
    };
    const ConvProblem forward = problem(ConvPass::forward);
    // All passes have the same tensors: either all can be made or none.
    if (!pool || !own_convolution_is_better(forward) || !make_implicit_gemm(context, forward)) {
      return nullptr;
    }
    auto op = std::make_unique<PooledConv2d>();
    op->saved_bytes_ =
        desc.training ? static_cast<std::size_t>(desc.batch * desc.out.elements()) : 0;
    const auto plan = [&](ConvPass pass) { return choose_conv_plan(context, problem(pass)); };
    op->forward_ = plan(ConvPass::forward);
    if (desc.training) op->backward_weights_ = plan(ConvPass::backward_weights);
    if (desc.training && desc.input_gradient) op->backward_data_ = plan(ConvPass::backward_data);
    return op;
  }

  std::size_t saved_bytes() const override { return saved_bytes_; }
  bool backward_needs_y() const override { return false; }

  void forward(const OpArgs& args) override {
    ConvArgs conv;
    conv.x = device<void>(args.x);
    conv.y = device<void>(args.y);
    conv.weight = device<const void>(args.weight);
    conv.bias = device<const float>(args.bias);
    conv.open = saved_bytes_ > 0 ? device<std::uint8_t>(args.saved) : nullptr;
    forward_->run(conv);
  }

  void backward(const OpArgs& args) override {
    ConvArgs conv;
    conv.x = device<void>(args.x);
    conv.y = device<void>(args.dy);
    conv.open = device<std::uint8_t>(args.saved);
    conv.dweight = device<float>(args.dweight);
    conv.dbias = device<float>(args.dbias);
    conv.write = args.write;
    backward_weights_->run(conv);
    if (!backward_data_) return;
    conv.x = device<void>(args.dx);
    conv.weight = device<const void>(args.weight);
    backward_data_->run(conv);
  }

  std::string implementation() const override {
    std::string text = "forward " + forward_->name();
    if (backward_weights_) text += ", weights " + backward_weights_->name();
    if (backward_data_) text += ", data " + backward_data_->name();
    return text + ", with pool";
  }

 private:
  std::size_t saved_bytes_ = 0;
  std::unique_ptr<ConvPlan> forward_, backward_weights_, backward_data_;
};

}  // namespace

std::optional<ConvPool> pool_inside(const Conv2dDesc& desc) {
  if (!desc.pool) return std::nullopt;
  const Pool2dDesc& pool = *desc.pool;
  const Size2 two{2, 2};
  if (pool.kernel != two || pool.stride != two || pool.padding != Size2{0, 0} ||
      pool.dilation != Size2{1, 1} || 2 * desc.out.h > desc.conv_out.h ||
      2 * desc.out.w > desc.conv_out.w) {
    return std::nullopt;
  }
  const bool average = pool.kind == PoolKind::average;
  const auto divisor = static_cast<float>(pool.divisor_override == 0 ? 4 : pool.divisor_override);
  return ConvPool{pool.kind, desc.out, average ? 1.0F / divisor : 1.0F};
}

std::unique_ptr<Op> make_cuda_conv2d(const CudaContext& context, const Conv2dDesc& desc) {
  check_cuda_desc(context, "a convolution", desc.type, desc.batch);
  if (auto pooled = PooledConv2d::make(context, desc)) return pooled;
  return std::make_unique<CudaConv2d>(context, desc);
}

}  // namespace dpt
