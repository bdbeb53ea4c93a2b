// One pass of a convolution on a GPU, and the plans that can run it. conv_plan.cpp chooses between
// them. implicit_gemm.cu, image_conv.cu and image_weights.cu (dpt's kernels), cudnn_conv.cpp and
// padded_conv.cu implement them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/runtime/context.h"

namespace dpt {

/// Pooling that is fused into the convolution: windows of 2x2 with stride 2, without padding or
/// overhang. The convolution's output is never in memory, and `y` of ConvArgs is the pooled output.
/// A last odd row or column is in no window, and is not computed.
struct ConvPool {
  PoolKind kind = PoolKind::max;
  SampleShape out;     ///< after the pooling
  float scale = 1.0F;  ///< factor of the sum over a window (average), 1 for max
};

/// One pass of a convolution: x (N,H,W,C), weight (K,R,S,C/groups), y (N,P,Q,K). `type` is that of
/// x, y and weight; bias and dweight are fp32.
struct ConvProblem {
  std::int64_t batch = 0;
  SampleShape in, out;
  Size2 kernel, stride, padding, dilation;
  std::int64_t groups = 1;
  Pass pass = Pass::forward;
  DType type = DType::f32;
  bool tf32 = false;                ///< fp32 factors may be rounded to tf32
  bool bias = false, relu = false;  ///< forward: y = pool(relu(conv + bias))
  std::optional<ConvPool> pool;     ///< supported only by dpt's plans
  // In backward_weights, `bias` requests the gradient of the bias as well. A plan that computes it
  // returns true from gives_dbias.

  /// Returns one line without spaces that contains all fields: the key of the plan cache.
  std::string key() const;
};

/// Returns one pass of a described convolution, without its pooling.
ConvProblem conv_problem(const Conv2dDesc& desc, Pass pass);

/// Addresses of one run. forward computes y from x, weight and bias. backward_data computes x from
/// y and weight, where x and y are gradients. backward_weights computes dweight from x and y, where
/// y is a gradient.
struct ConvArgs {
  void* x = nullptr;
  void* y = nullptr;
  const void* weight = nullptr;
  const float* bias = nullptr;
  const void* bias16 = nullptr;  ///< bf16 copy of the bias, if the problem's type is bf16
  /// Mask of a fused pool: a byte per element of y, in which bit 2 i + j is set if gradient flows
  /// to position (i, j) of its window. Forward writes it unless it is null; backward reads it.
  std::uint8_t* open = nullptr;
  float* dweight = nullptr;
  float* dbias = nullptr;                  ///< used only if the plan computes it
  GradWrite write = GradWrite::overwrite;  ///< mode of writing dweight and dbias
  void* scratch = nullptr;                 ///< scratch_bytes() of the plan, 64-byte aligned
};

/// An implementation of one problem. All work is queued on the context's stream; running allocates
/// nothing; the same inputs give the same bits.
class ConvPlan {
 public:
  virtual ~ConvPlan() = default;
  virtual void run(const ConvArgs& args) = 0;
  /// Returns true if run writes dbias.
  virtual bool gives_dbias() const { return false; }
  /// Returns the bytes of memory in ConvArgs::scratch that run overwrites.
  virtual std::size_t scratch_bytes() const { return 0; }
  /// Returns true if the plan is cuDNN's and runs on tensor cores.
  virtual bool uses_tensor_cores() const { return false; }
  /// Returns the plan's name for logs and the cache, the same in every process: "own:tf32",
  /// "cudnn:eng38-k2=1", "padded:cudnn:eng38-k2=1".
  virtual std::string name() const = 0;

  /// Sets a remark on how the plan was chosen: which plan it replaces, and why. Empty for none.
  void set_remark(std::string remark) { remark_ = std::move(remark); }
  /// Returns the name with the remark, for logs.
  std::string described() const;

 private:
  std::string remark_;
};

/// Creates a plan with dpt's kernels for any shape, including groups; null if a tensor has 2^31
/// elements or more. Computes the gradient of the bias too, if requested.
std::unique_ptr<ConvPlan> make_implicit_gemm(const CudaContext& context,
                                             const ConvProblem& problem);

/// Creates a plan with dpt's kernels for small images, in tf32 and bf16; null for other problems,
/// or if the GPU has too little shared memory.
std::unique_ptr<ConvPlan> make_image_conv(const CudaContext& context, const ConvProblem& problem);

/// Creates dpt's plans for the problem. The first one is preferred if nothing is timed.
std::vector<std::unique_ptr<ConvPlan>> make_own_plans(const CudaContext& context,
                                                      const ConvProblem& problem);

/// Maximum number of cuDNN's plans among which a problem's plan is chosen.
inline constexpr int kMaxCudnnPlans = 6;

/// Creates up to `most` of cuDNN's deterministic plans for the problem that fit into the context's
/// workspace, in the order of its heuristics. Returns none if cuDNN has none. Uses strict fp32 (no
/// tf32) if the problem is f32 without tf32.
std::vector<std::unique_ptr<ConvPlan>> make_cudnn_plans(const CudaContext& context,
                                                        const ConvProblem& problem, int most);

/// Creates cuDNN's plan of this name without asking the heuristics. Returns null if this cuDNN, the
/// GPU or the workspace does not support it.
std::unique_ptr<ConvPlan> make_cudnn_plan(const CudaContext& context, const ConvProblem& problem,
                                          const std::string& name);

/// Prefix of the names of padded plans; the name of the plan for the padded problem follows.
inline constexpr std::string_view kPaddedPrefix = "padded:";

/// Returns `problem` with channels of zeros appended to its input, so that a pixel fills 16 bytes:
/// 8 channels in bf16, 4 in tf32. Returns nothing if padding does not help (no tensor cores, enough
/// channels, groups) or is not supported (a fused pool, the gradient of the data).
std::optional<ConvProblem> padded_problem(const ConvProblem& problem);

/// Creates a plan for `problem` that pads its tensors in scratch memory and runs `inner`, a plan
/// for padded_problem(problem).
std::unique_ptr<ConvPlan> make_padded_conv(const CudaContext& context, const ConvProblem& problem,
                                           std::unique_ptr<ConvPlan> inner);

/// Returns true if dpt's kernels rather than cuDNN's should run the problem, by a fixed rule.
bool own_convolution_is_better(const ConvProblem& problem);

/// Returns true if the problem is so small that it ends before a helper kernel of cuDNN has
/// started.
bool is_small_convolution(const ConvProblem& problem);

/// Chooses a plan. With a plan cache file, takes the plan that the cache names; if it names none,
/// times all candidates on scratch memory and caches the fastest. Without a file, or in exact mode,
/// applies a fixed rule that depends only on the problem and the GPU. Throws ErrorKind::device if
/// nothing can run the problem.
std::unique_ptr<ConvPlan> choose_conv_plan(const CudaContext& context, const ConvProblem& problem);

}  // namespace dpt
