// Convolutions by cuDNN. A problem becomes a graph of operations on tensor descriptors. cuDNN's
// heuristics suggest engines and their settings for the graph, and each suggestion becomes an
// execution plan. As cuDNN requires, tensors have the dimensions N,C,H,W and strides for channels
// last.
//
// Limitations of cuDNN: for bf16 tensors, it requires the bias in bf16 as well (hence
// ConvArgs::bias16). It also returns the gradient of the weights in bf16, although its sums are
// fp32; dpt converts the gradient afterwards. It has engines for convolution + bias + ReLU but none
// without the bias, so dpt adds a bias of zeros.
//
// Plans only queue kernels on the context's stream, so they can be captured. Some plans compile
// their kernels when they are created, and unload them when they are destroyed. A graph must not be
// replayed after that.
#include "kernels/cuda/conv/cudnn_conv.h"

#include <optional>

#include "kernels/base/divide.h"
#include "kernels/base/error.h"
#include "kernels/cuda/add_gradient.h"
#include "kernels/cuda/conv/cudnn_candidates.h"
#include "kernels/cuda/runtime/check.h"
#include "kernels/cuda/runtime/per_context.h"
#include "kernels/cuda/runtime/wait.h"

static_assert(CUDNN_VERSION >= 90800, "dpt needs the headers of cuDNN 9.8 or later");

namespace dpt {
namespace {

std::int64_t weight_count(const ConvProblem& problem) {
  return problem.out.c * problem.kernel.h * problem.kernel.w * (problem.in.c / problem.groups);
}

/// Returns the bytes at the end of the workspace that are reserved for a bias of zeros, or for a
/// gradient that is converted or added afterwards. (Few engines can add to the output, and they
/// differ from those that overwrite.)
std::size_t bytes_apart(const ConvProblem& problem) {
  std::int64_t count = 0;
  if (problem.pass == Pass::backward_weights) count = weight_count(problem);
  if (zero_bias(problem)) count = problem.out.c;
  return align_up<std::size_t>(static_cast<std::size_t>(count) * size_of(problem.type), 256);
}

/// Returns the part of the workspace that the plan may use; nothing if the reserved bytes alone do
/// not fit.
std::optional<std::size_t> plan_room(std::size_t workspace_bytes, const ConvProblem& problem) {
  const std::size_t apart = bytes_apart(problem);
  if (workspace_bytes < apart) return std::nullopt;
  return (workspace_bytes - apart) / 256 * 256;
}

using HandleOwner = std::shared_ptr<cudnnContext>;

HandleOwner shared_handle(const CudaContext& context) {
  static PerContext<cudnnContext> handles;
  return handles.get(context, [&] {
    cudnnHandle_t handle = nullptr;
    cudnn_check(cudnn().create(&handle), "cudnnCreate");
    HandleOwner owner(handle,
                      [](cudnnHandle_t made) { release_unless_lost(cudnn().destroy, made); });
    return owner;
  });
}

/// State that the plans of one problem share.
struct Shared {
  Shared(const CudaContext& of, const ConvProblem& problem)
      : context(of), handle(shared_handle(of)), device(handle.get()), graph(device, problem) {}
  const CudaContext& context;
  HandleOwner handle;
  CudnnDevice device;
  CudnnConvGraph graph;
};

class CudnnPlan final : public ConvPlan {
 public:
  CudnnPlan(std::shared_ptr<const Shared> shared, const ConvProblem& problem,
            CudnnCandidate candidate, CudnnDescriptor plan)
      : shared_(std::move(shared)),
        p_(problem),
        candidate_(std::move(candidate)),
        plan_(std::move(plan)) {}

  void run(const ConvArgs& args) override {
    const CudaContext& context = shared_->context;
    const bool bf16 = p_.type == DType::bf16;
    const DevPtr apart = address(context.workspace) + *plan_room(context.workspace_bytes, p_);
    const bool gradient_apart =
        p_.pass == Pass::backward_weights && (bf16 || args.write == GradWrite::add);
    const DevPtr bias = bf16 ? address(args.bias16) : address(args.bias);
    const DevPtr gradient = address(args.dweight);
    if (zero_bias(p_)) {
      cuda_check(cudaMemsetAsync(device<void>(apart), 0, bytes_apart(p_), context.stream),
                 "cudaMemsetAsync");
    }
    bind({address(args.x), address(args.y), address(args.weight), zero_bias(p_) ? apart : bias,
          gradient_apart ? apart : gradient, address(context.workspace)});
    // The stream may be a branch of the queue.
    cudnn_check(cudnn().set_stream(shared_->handle.get(), context.stream), "cudnnSetStream");
    cudnn_check(cudnn().execute(shared_->handle.get(), plan_.get(), pack_->get()),
                candidate_.name.c_str());
    if (gradient_apart) {
      add_gradient(context, gradient, apart, p_.type, weight_count(p_), args.write);
    }
  }
  std::string name() const override { return candidate_.name; }
  bool uses_tensor_cores() const override { return cudnn_uses_tensor_cores(candidate_); }

 private:
  /// Addresses of x, y, weight, bias, gradient and workspace.
  using Addresses = std::array<DevPtr, 6>;

  static DevPtr address(const void* memory) { return {reinterpret_cast<std::uintptr_t>(memory)}; }

  /// Passes the addresses to cuDNN if they have changed.
  void bind(const Addresses& addresses) {
    if (pack_ && addresses == bound_) return;
    constexpr std::array<std::int64_t, 5> kIds = {kX, kY, kWeight, kBias, kGradient};
    const bool gradient = p_.pass == Pass::backward_weights;
    const std::array<bool, 5> used = {true, true, !gradient, has_bias(p_), gradient};
    std::vector<std::int64_t> ids;
    std::vector<void*> pointers;
    for (std::size_t i = 0; i < kIds.size(); ++i) {
      if (!used[i]) continue;
      ids.push_back(kIds[i]);
      pointers.push_back(device<void>(addresses[i]));
    }
    CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set_all(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, std::span<const std::int64_t>(ids))
        .set_all(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, std::span<void* const>(pointers))
        .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, device<void>(addresses.back()))
        .finalize();
    pack_ = std::move(pack);
    bound_ = addresses;
  }

  std::shared_ptr<const Shared> shared_;
  ConvProblem p_;
  CudnnCandidate candidate_;
  CudnnDescriptor plan_;
  std::optional<CudnnDescriptor> pack_;
  Addresses bound_ = {};
};

/// A candidate with its execution plan.
struct UsableCandidate {
  CudnnCandidate candidate;
  CudnnDescriptor plan;
};

/// Returns up to `most` candidates that fit into the workspace, best first. Throws if none is left
/// because of a failure.
std::vector<UsableCandidate> usable_candidates(const CudnnDevice& device,
                                               const CudnnConvGraph& graph,
                                               const ConvProblem& problem,
                                               std::size_t workspace_bytes, int most) {
  std::vector<UsableCandidate> usable;
  const std::optional<std::size_t> room = plan_room(workspace_bytes, problem);
  if (!room) return usable;
  CudnnFailures failures = graph.failures();
  for (CudnnCandidate& candidate : cudnn_candidates(device, graph, problem, failures)) {
    if (static_cast<int>(usable.size()) >= most) break;
    std::optional<CudnnDescriptor> plan =
        make_cudnn_execution_plan(device, candidate, *room, failures);
    if (plan) usable.push_back({std::move(candidate), std::move(*plan)});
  }
  if (usable.empty()) failures.raise();
  return usable;
}

}  // namespace

std::vector<std::unique_ptr<ConvPlan>> make_cudnn_plans(const CudaContext& context,
                                                        const ConvProblem& problem, int most) {
  const auto shared = std::make_shared<const Shared>(context, problem);
  std::vector<std::unique_ptr<ConvPlan>> plans;
  for (UsableCandidate& usable :
       usable_candidates(shared->device, shared->graph, problem, context.workspace_bytes, most)) {
    plans.push_back(std::make_unique<CudnnPlan>(shared, problem, std::move(usable.candidate),
                                                std::move(usable.plan)));
  }
  return plans;
}

std::unique_ptr<ConvPlan> make_cudnn_plan(const CudaContext& context, const ConvProblem& problem,
                                          const std::string& name) {
  const std::optional<std::size_t> room = plan_room(context.workspace_bytes, problem);
  // Do not load cuDNN for the name of another plan.
  if (!room || !name.starts_with(kCudnnPrefix)) return nullptr;
  const auto shared = std::make_shared<const Shared>(context, problem);
  std::optional<CudnnCandidate> candidate =
      cudnn_candidate_named(shared->device, shared->graph, problem, name);
  if (!candidate) return nullptr;
  CudnnFailures failures;
  std::optional<CudnnDescriptor> plan =
      make_cudnn_execution_plan(shared->device, *candidate, *room, failures);
  if (!plan) return nullptr;
  return std::make_unique<CudnnPlan>(shared, problem, std::move(*candidate), std::move(*plan));
}

std::vector<CudnnPlanFacts> describe_cudnn_plans(const std::string& gpu, const ConvProblem& problem,
                                                 std::size_t workspace_bytes, int most) {
  const CudnnDevice described(gpu);
  const CudnnConvGraph graph(described, problem);
  std::vector<CudnnPlanFacts> plans;
  for (const UsableCandidate& usable :
       usable_candidates(described, graph, problem, workspace_bytes, most)) {
    plans.push_back({usable.candidate.name, cudnn_uses_tensor_cores(usable.candidate),
                     cudnn_plan_workspace(usable.plan) + bytes_apart(problem)});
  }
  return plans;
}

bool cudnn_has_plan(const std::string& gpu, const ConvProblem& problem, std::size_t workspace_bytes,
                    const std::string& name) {
  const std::optional<std::size_t> room = plan_room(workspace_bytes, problem);
  if (!room) return false;
  const CudnnDevice described(gpu);
  const CudnnConvGraph graph(described, problem);
  const std::optional<CudnnCandidate> candidate =
      cudnn_candidate_named(described, graph, problem, name);
  CudnnFailures failures;
  return candidate && make_cudnn_execution_plan(described, *candidate, *room, failures);
}

}  // namespace dpt
