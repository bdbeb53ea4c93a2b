// One pass of a convolution on a GPU, and the ways to run it. The choice between them is made in
// conv_plan.cpp; what a way is lives in implicit_gemm.cu (our own kernels) and cudnn_conv.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/runtime/context.h"

namespace dpt {

enum class ConvPass : std::uint8_t { forward, backward_data, backward_weights };

/// Pooling over windows of 2x2 with stride 2, without padding or overhang, made inside the
/// convolution: its own output never lies in memory. `y` of ConvArgs is then the pooled output, and
/// pixels of the last odd row and column, which no window has, are not computed.
struct ConvPool {
  PoolKind kind = PoolKind::max;
  SampleShape out;     ///< after the pooling
  float scale = 1.0F;  ///< factor of the sum over a window (average), 1 for max
};

/// x (N,H,W,C), weight (K,R,S,C/groups), y (N,P,Q,K). `type` is that of x, y and weight; bias and
/// dweight are fp32.
struct ConvProblem {
  std::int64_t batch = 0;
  SampleShape in, out;
  Size2 kernel, stride, padding, dilation;
  std::int64_t groups = 1;
  ConvPass pass = ConvPass::forward;
  DType type = DType::f32;
  bool tf32 = false;                ///< fp32 factors may be rounded to tf32
  bool bias = false, relu = false;  ///< forward: y = pool(relu(conv + bias))
  std::optional<ConvPool> pool;     ///< only our own plans take one
  // backward_weights: `bias` asks for the gradient of the bias as well; a plan may give it
  // (gives_dbias).

  /// One line without spaces that names all of the above: the key of the plan cache.
  std::string key() const;
};

/// One pass of a described convolution; its pooling is left to the caller.
ConvProblem conv_problem(const Conv2dDesc& desc, ConvPass pass);

/// forward: y from x, weight, bias. backward_data: x from y, weight (x and y hold gradients).
/// backward_weights: dweight from x and y (y holds the gradient).
struct ConvArgs {
  void* x = nullptr;
  void* y = nullptr;
  const void* weight = nullptr;
  const float* bias = nullptr;
  const void* bias16 = nullptr;  ///< the same in bf16, where the problem's type is that
  /// Mask of a fused pool: a byte per element of y, whose bit 2 i + j is set if gradient flows to
  /// place (i, j) of its window. Forward writes it, if it is not null; backward reads it.
  std::uint8_t* open = nullptr;
  float* dweight = nullptr;
  float* dbias = nullptr;                  ///< only where the plan gives it
  GradWrite write = GradWrite::overwrite;  ///< mode of writing dweight and dbias
};

/// A way to run one problem. Everything is queued on the context's stream; running allocates
/// nothing; the same inputs give the same bits.
class ConvPlan {
 public:
  virtual ~ConvPlan() = default;
  virtual void run(const ConvArgs& args) = 0;
  /// Returns true if run writes dbias.
  virtual bool gives_dbias() const { return false; }
  /// Names it in logs and in the cache, the same in every process: "own:tf32", "cudnn:eng38-k2=1".
  virtual std::string name() const = 0;

  /// Says how the plan was chosen: what it replaces, and why. Empty: nothing to say.
  void set_remark(std::string remark) { remark_ = std::move(remark); }
  /// The name with the remark, for logs.
  std::string described() const;

 private:
  std::string remark_;
};

/// Our own kernels for the problem: any shape, groups too; null where a tensor has 2^31 elements or
/// more. The gradient of the bias comes with the weights' where it is asked for.
std::unique_ptr<ConvPlan> make_implicit_gemm(const CudaContext& context,
                                             const ConvProblem& problem);

/// Our own kernels for small images, in tf32 and bf16; null where a problem is not of that kind, or
/// the GPU has too little shared memory for it.
std::unique_ptr<ConvPlan> make_image_conv(const CudaContext& context, const ConvProblem& problem);

/// Our own plans for the problem, the one to prefer without timing first.
std::vector<std::unique_ptr<ConvPlan>> make_own_plans(const CudaContext& context,
                                                      const ConvProblem& problem);

/// cuDNN's deterministic plans for the problem that fit into the context's workspace, in the order
/// of its heuristics, at most `most`. Empty where it has none. Strict fp32 (no tf32) where the
/// problem is f32 without tf32.
std::vector<std::unique_ptr<ConvPlan>> make_cudnn_plans(const CudaContext& context,
                                                        const ConvProblem& problem, int most);

/// The one of cuDNN's plans that has this name, without asking the heuristics. Null where the cuDNN
/// found here, the GPU or the workspace has no such plan.
std::unique_ptr<ConvPlan> make_cudnn_plan(const CudaContext& context, const ConvProblem& problem,
                                          const std::string& name);

/// The fixed rule: whether our own kernels are to run the problem rather than cuDNN's.
bool own_convolution_is_better(const ConvProblem& problem);

/// The plan to use. With a plan cache file: the one that the cache names, or else the fastest of
/// all candidates by timing them on scratch memory, which is then kept in the cache. Without, or in
/// exact mode: a fixed rule of the problem and the GPU alone. Throws ErrorKind::device when
/// nothing can run it.
std::unique_ptr<ConvPlan> choose_conv_plan(const CudaContext& context, const ConvProblem& problem);

}  // namespace dpt
