// Convolution with its fused operations, composed of plans for its three passes, pooling and column
// sums.
#include "kernels/cuda/conv2d.h"

#include <algorithm>

#include "kernels/base/divide.h"
#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/conv/conv_plan.h"
#include "kernels/cuda/description.h"
#include "kernels/cuda/ops.h"

namespace dpt {
namespace {

/// Alignment that cudaMalloc guarantees.
constexpr std::size_t kGpuAlignment = 256;

/// Plans of a description's passes; `pool` is fused into them.
struct Passes {
  Passes(const CudaContext& context, const Conv2dDesc& desc, const std::optional<ConvPool>& pool)
      : type(desc.type) {
    const auto plan = [&](Pass pass) {
      ConvProblem problem = conv_problem(desc, pass);
      problem.pool = pool;
      return choose_conv_plan(context, problem);
    };
    forward = plan(Pass::forward);
    if (desc.training) weights = plan(Pass::backward_weights);
    if (desc.training && desc.input_gradient) data = plan(Pass::backward_data);
  }

  /// Computes y from args.x.
  void run_forward(const OpArgs& args, DevPtr y, DevPtr scratch, DevPtr open = {}) const {
    ConvArgs conv;
    conv.x = device<void>(args.x);
    conv.y = device<void>(y);
    conv.weight = device<const void>(args.params[Conv2dDesc::kWeight].as(type));
    conv.bias = device<const float>(args.params[Conv2dDesc::kBias].f32);
    conv.bias16 = device<const void>(args.params[Conv2dDesc::kBias].bf16);
    conv.open = device<std::uint8_t>(open);
    conv.scratch = device<void>(scratch);
    forward->run(conv);
  }
  void run_weights(const OpArgs& args, DevPtr dy, DevPtr scratch, DevPtr open = {}) const {
    ConvArgs conv;
    conv.x = device<void>(args.x);
    conv.y = device<void>(dy);
    conv.open = device<std::uint8_t>(open);
    conv.dweight = device<float>(args.params[Conv2dDesc::kWeight].gradient);
    conv.dbias = device<float>(args.params[Conv2dDesc::kBias].gradient);
    conv.write = args.write;
    conv.scratch = device<void>(scratch);
    weights->run(conv);
  }
  /// Computes dx; does nothing if it is not needed.
  void run_data(const OpArgs& args, DevPtr dy, DevPtr scratch, DevPtr open = {}) const {
    if (!data) return;
    ConvArgs conv;
    conv.x = device<void>(args.dx);
    conv.y = device<void>(dy);
    conv.open = device<std::uint8_t>(open);
    conv.weight = device<const void>(args.params[Conv2dDesc::kWeight].as(type));
    conv.scratch = device<void>(scratch);
    data->run(conv);
  }

  /// Returns the bytes of scratch memory that a run of any pass needs.
  std::size_t scratch_bytes() const {
    std::size_t bytes = 0;
    for (const auto* plan : {&forward, &weights, &data}) {
      if (*plan) bytes = std::max(bytes, (*plan)->scratch_bytes());
    }
    return bytes;
  }

  std::string kernel(Pass pass) const {
    const auto& plan = pass == Pass::forward         ? forward
                       : pass == Pass::backward_data ? data
                                                     : weights;
    return plan ? plan->name() : std::string();
  }
  std::string names() const {
    std::string text = "forward " + forward->described();
    if (weights) text += ", weights " + weights->described();
    if (data) text += ", data " + data->described();
    return text;
  }

  DType type;
  std::unique_ptr<ConvPlan> forward, weights, data;
};

/// Convolution with separate pooling. Without a pool, the convolution's output z (batch, conv_out),
/// after ReLU, is y. With a pool, z is in `saved` if the pool's backward reads it, otherwise in
/// scratch. The gradient of z is in scratch in both cases.
class CudaConv2d final : public Op {
 public:
  CudaConv2d(const CudaContext& context, const Conv2dDesc& desc)
      : context_(context), d_(desc), passes_(context, desc, std::nullopt) {
    if (desc.pool) {
      pool_ = desc.relu ? make_cuda_pool_after_relu(context, *desc.pool)
                        : make_cuda_op(context, *desc.pool);
      keep_z_ = desc.training && pool_->backward_needs_x();
    } else if (desc.relu && desc.training) {
      ReluDesc relu;
      relu.batch = desc.batch;
      relu.shape = desc.out;
      relu.type = desc.type;
      relu_ = make_cuda_op(context, relu);
    }
  }

  std::size_t scratch_bytes() const override {
    std::size_t bytes = std::max(passes_.scratch_bytes(), pool_ ? pool_->scratch_bytes() : 0);
    if (sums_bias()) bytes = std::max(bytes, column_sums_scratch(context_, rows(), d_.conv_out.c));
    // Scratch begins with z or its gradient.
    return bytes + (pool_ ? z_bytes() : 0);
  }
  std::size_t saved_bytes() const override {
    return (pool_ ? align_up(pool_->saved_bytes(), kGpuAlignment) : 0) + (keep_z_ ? z_bytes() : 0);
  }
  bool backward_needs_y() const override { return pool_ ? pool_->backward_needs_y() : d_.relu; }
  bool backward_keeps_dy() const override { return pool_ ? pool_->backward_keeps_dy() : !d_.relu; }

  void forward(const OpArgs& args) override {
    const DevPtr z = !pool_ ? args.y : keep_z_ ? kept_z(args) : args.scratch;
    const DevPtr rest = pool_ ? args.scratch + z_bytes() : args.scratch;
    passes_.run_forward(args, z, rest);
    if (!pool_) return;
    OpArgs pool = args;
    pool.x = z;
    pool.scratch = rest;
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
    } else if (relu_ && sums_bias()) {
      // In one kernel, compute the gradient before the ReLU (it may overwrite dy) and its column
      // sums.
      relu_column_sums(context_, dz, args.y, d_.type, rows(), d_.conv_out.c,
                       args.params[d_.kBias].gradient, args.write, rest);
    } else if (relu_) {
      OpArgs relu;
      relu.y = args.y;
      relu.dy = relu.dx = dz;
      relu_->backward(relu);
    }
    passes_.run_weights(args, dz, rest);
    if (sums_bias() && !relu_) {
      column_sums(context_, dz, d_.type, rows(), d_.conv_out.c, args.params[d_.kBias].gradient,
                  args.write, rest);
    }
    passes_.run_data(args, dz, rest);
  }

  std::string implementation() const override {
    return passes_.names() + (pool_ ? ", pool " + pool_->implementation() : "");
  }
  std::string replaceable_kernel(Pass pass) const override { return passes_.kernel(pass); }

 private:
  bool sums_bias() const { return d_.bias && passes_.weights && !passes_.weights->gives_dbias(); }
  std::int64_t rows() const { return d_.batch * d_.conv_out.h * d_.conv_out.w; }
  std::size_t z_bytes() const {
    return align_up(static_cast<std::size_t>(rows() * d_.conv_out.c) * size_of(d_.type),
                    kGpuAlignment);
  }
  DevPtr kept_z(const OpArgs& args) const {
    return args.saved + align_up(pool_->saved_bytes(), kGpuAlignment);
  }

  const CudaContext& context_;
  Conv2dDesc d_;
  Passes passes_;
  bool keep_z_ = false;
  std::unique_ptr<Op> pool_, relu_;
};

/// Convolution, ReLU and pooling as one kernel. The backward passes read the pooled gradient. The
/// convolution's output, the largest tensor of such a layer, is never in memory.
class PooledConv2d final : public Op {
 public:
  PooledConv2d(const CudaContext& context, const Conv2dDesc& desc, const ConvPool& pool)
      : passes_(context, desc, pool),
        saved_bytes_(desc.training ? static_cast<std::size_t>(desc.batch * desc.out.elements())
                                   : 0) {}

  std::size_t scratch_bytes() const override { return passes_.scratch_bytes(); }
  std::size_t saved_bytes() const override { return saved_bytes_; }
  bool backward_needs_y() const override { return false; }
  bool backward_keeps_dy() const override { return true; }
  void forward(const OpArgs& args) override {
    passes_.run_forward(args, args.y, args.scratch, saved_bytes_ > 0 ? args.saved : DevPtr());
  }
  void backward(const OpArgs& args) override {
    passes_.run_weights(args, args.dy, args.scratch, args.saved);
    passes_.run_data(args, args.dy, args.scratch, args.saved);
  }
  std::string implementation() const override { return passes_.names() + ", with pool"; }
  std::string replaceable_kernel(Pass pass) const override { return passes_.kernel(pass); }

 private:
  Passes passes_;
  std::size_t saved_bytes_;
};

/// Returns true if dpt's kernels can fuse the pooling and no other implementation is better.
bool pools_inside(const CudaContext& context, const Conv2dDesc& desc) {
  ConvProblem problem = conv_problem(desc, Pass::forward);
  problem.pool = pool_inside(desc);
  if (!problem.pool || !own_convolution_is_better(problem)) return false;
  // All passes have the same tensors, so either all plans can be created or none.
  const std::unique_ptr<ConvPlan> plan = make_implicit_gemm(context, problem);
  return plan && !context.avoided.contains(plan->name());
}

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

std::unique_ptr<Op> make_cuda_op(const CudaContext& context, const Conv2dDesc& desc) {
  check_cuda_desc(context, "a convolution", desc.type, desc.batch);
  if (pools_inside(context, desc)) {
    return std::make_unique<PooledConv2d>(context, desc, *pool_inside(desc));
  }
  return std::make_unique<CudaConv2d>(context, desc);
}

}  // namespace dpt
