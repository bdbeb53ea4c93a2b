// Convolutions by cuDNN. A problem becomes a graph of operations on described tensors; cuDNN's
// heuristics name engines with their settings for it; each becomes an execution plan. Tensors are
// described as cuDNN wants them, with dimensions N,C,H,W and strides that say where numbers lie:
// channels last.
//
// What cuDNN does not have: with tensors in bf16 it wants the bias in bf16 as well, which is why
// there is a copy (ConvArgs::bias16), and gives the gradient of the weights in bf16 (its sums are
// fp32), which is converted in the workspace. And it has engines for convolution + bias + ReLU, but
// none without the bias, which is then one of zeros.
//
// Plans queue kernels on the context's stream and do nothing else, so they can be captured. The
// kernels of some are compiled when the plan is made, and unloaded with it: a graph must not be
// replayed after its kernels are gone.
#include "kernels/cuda/conv/cudnn_conv.h"

#include <algorithm>
#include <charconv>
#include <deque>
#include <optional>
#include <string_view>

#include "kernels/cuda/add_gradient.h"
#include "kernels/cuda/conv/cudnn_graph.h"
#include "kernels/cuda/runtime/check.h"
#include "kernels/cuda/runtime/per_context.h"
#include "kernels/error.h"

static_assert(CUDNN_VERSION >= 90800, "dpt needs the headers of cuDNN 9.8 or later");

namespace dpt {
namespace {

/// Unique names of the tensors in a graph. Virtual ones exist between two operations only.
enum Tensor : std::int64_t { kX = 1, kY, kWeight, kBias, kGradient, kVirtualSum, kVirtualBiased };

// All buffers are aligned to more than this, and no engine asks for more.
constexpr std::int64_t kAlignment = 16;

cudnnDataType_t type_of(const ConvProblem& problem) {
  return problem.type == DType::bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
}

/// Failures that cost no more than candidates. One that is not just "nothing for that" is kept for
/// the case that no candidate is left.
class FailureLog {
 public:
  /// Whether the status is success; keeps it if it tells of a failure.
  bool succeeded(cudnnStatus_t status, const char* what) {
    if (status == CUDNN_STATUS_SUCCESS) return true;
    if (!cudnn_unsupported(status)) text_ = cudnn_words(status, what);
    return false;
  }
  /// Throws what was kept, if anything was.
  void raise() const {
    if (!text_.empty()) fail(ErrorKind::device, "{}", text_);
  }

 private:
  std::string text_;
};

/// What cuDNN makes plans for: the GPU of a handle, or one that is only described.
class PlanDevice {
 public:
  explicit PlanDevice(cudnnHandle_t handle) : handle_(handle) {}
  explicit PlanDevice(const std::string& description) {
    properties_.emplace(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    // The terminating zero belongs to it.
    properties_->set_all(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                         std::span<const char>(description.c_str(), description.size() + 1));
    properties_->finalize();
  }

  void attach_to_graph(CudnnDescriptor& graph) const {
    if (handle_) graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle_);
  }
  void attach_to_heuristics(CudnnDescriptor& heuristics) const {
    if (properties_) heuristics.link(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *properties_);
  }
  void attach_to_engine(CudnnDescriptor& engine) const {
    if (properties_) engine.link(CUDNN_ATTR_ENGINE_DEVICEPROP, *properties_);
  }
  void attach_to_plan(CudnnDescriptor& plan) const {
    if (handle_) plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, handle_);
    if (properties_) plan.link(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *properties_);
  }

 private:
  cudnnHandle_t handle_ = nullptr;
  std::optional<CudnnDescriptor> properties_;
};

/// Whether the graph has a bias, and whether that is one of zeros.
bool has_bias(const ConvProblem& problem) {
  return problem.pass == ConvPass::forward && (problem.bias || problem.relu);
}
bool zero_bias(const ConvProblem& problem) {
  return has_bias(problem) && !problem.bias;
}

/// The problem as a graph: conv, or conv + bias, or relu(conv + bias); or one of the two gradients.
class ConvGraph {
 public:
  ConvGraph(const PlanDevice& gpu, const ConvProblem& problem) : p_(problem) {
    switch (p_.pass) {
      case ConvPass::forward:
        forward();
        break;
      case ConvPass::backward_data:
        backward_data();
        break;
      case ConvPass::backward_weights:
        backward_weights();
        break;
    }
    for (CudnnDescriptor& operation : operations_) operation.finalize();
    graph_.link_all(CUDNN_ATTR_OPERATIONGRAPH_OPS, operations_);
    gpu.attach_to_graph(graph_);
    supported_ = failures_.succeeded(graph_.try_finalize(), "an operation graph");
  }

  bool supported() const { return supported_; }
  const FailureLog& failures() const { return failures_; }
  const CudnnDescriptor& get() const { return graph_; }

 private:
  using Dims = std::array<std::int64_t, 4>;

  /// Channels last, dimensions (first, c, h, w).
  const CudnnDescriptor& tensor(std::int64_t id, std::int64_t first, std::int64_t c, std::int64_t h,
                                std::int64_t w, cudnnDataType_t type, bool is_virtual = false) {
    CudnnDescriptor& made = parts_.emplace_back(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    made.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id)
        .set(CUDNN_ATTR_TENSOR_DATA_TYPE, type)
        .set(CUDNN_ATTR_TENSOR_DIMENSIONS, Dims{first, c, h, w})
        .set(CUDNN_ATTR_TENSOR_STRIDES, Dims{c * h * w, 1, c * w, c})
        .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kAlignment)
        .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, is_virtual)
        .finalize();
    return made;
  }
  const CudnnDescriptor& x() {
    return tensor(kX, p_.batch, p_.in.c, p_.in.h, p_.in.w, type_of(p_));
  }
  const CudnnDescriptor& y(std::int64_t id, cudnnDataType_t type, bool is_virtual = false) {
    return tensor(id, p_.batch, p_.out.c, p_.out.h, p_.out.w, type, is_virtual);
  }
  const CudnnDescriptor& weight(std::int64_t id, cudnnDataType_t type) {
    return tensor(id, p_.out.c, p_.in.c / p_.groups, p_.kernel.h, p_.kernel.w, type);
  }

  const CudnnDescriptor& convolution() {
    using Pair = std::array<std::int64_t, 2>;
    CudnnDescriptor& made = parts_.emplace_back(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    made.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT)
        .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION)
        .set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, std::int64_t{2})
        .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, Pair{p_.dilation.h, p_.dilation.w})
        .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, Pair{p_.stride.h, p_.stride.w})
        .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, Pair{p_.padding.h, p_.padding.w})
        .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, Pair{p_.padding.h, p_.padding.w})
        .finalize();
    return made;
  }

  CudnnDescriptor& pointwise(cudnnPointwiseMode_t mode) {
    CudnnDescriptor& kind = parts_.emplace_back(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    kind.set(CUDNN_ATTR_POINTWISE_MODE, mode)
        .set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT)
        .finalize();
    return operations_.emplace_back(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)
        .link(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind);
  }

  void forward() {
    // What lies between the operations is never rounded to less than fp32.
    const CudnnDescriptor* sum =
        p_.bias || p_.relu ? &y(kVirtualSum, CUDNN_DATA_FLOAT, true) : &y(kY, type_of(p_));
    operations_.emplace_back(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR)
        .link(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, convolution())
        .link(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x())
        .link(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, weight(kWeight, type_of(p_)))
        .link(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, *sum)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 1.0F)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 0.0F);
    if (has_bias(p_)) {
      const CudnnDescriptor& biased =
          p_.relu ? y(kVirtualBiased, CUDNN_DATA_FLOAT, true) : y(kY, type_of(p_));
      pointwise(CUDNN_POINTWISE_ADD)
          .link(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, *sum)
          .link(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, tensor(kBias, 1, p_.out.c, 1, 1, type_of(p_)))
          .link(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, biased);
      sum = &biased;
    }
    if (p_.relu) {
      pointwise(CUDNN_POINTWISE_RELU_FWD)
          .link(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, *sum)
          .link(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y(kY, type_of(p_)));
    }
  }

  void backward_data() {
    operations_.emplace_back(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR)
        .link(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, convolution())
        .link(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, x())
        .link(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, weight(kWeight, type_of(p_)))
        .link(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, y(kY, type_of(p_)))
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, 1.0F)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, 0.0F);
  }

  void backward_weights() {
    operations_.emplace_back(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR)
        .link(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, convolution())
        .link(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, x())
        .link(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, weight(kGradient, type_of(p_)))
        .link(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, y(kY, type_of(p_)))
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, 1.0F)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, 0.0F);
  }

  ConvProblem p_;
  // Deques, because descriptors refer to each other. What is referred to is destroyed last.
  std::deque<CudnnDescriptor> parts_, operations_;
  CudnnDescriptor graph_{CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR};
  FailureLog failures_;
  bool supported_ = false;
};

/// A way to run a graph: an engine and the settings of its knobs.
struct Candidate {
  std::string name;
  CudnnDescriptor config;
};

constexpr std::string_view kNamePrefix = "cudnn:eng";

/// "cudnn:eng38-k2=1": the engine's number and its knobs' (type=value), which together name the way
/// within one version of cuDNN.
std::string name_of(const CudnnDescriptor& engine, const CudnnDescriptor& config) {
  std::string name =
      fmt::format("{}{}", kNamePrefix, engine.get<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX));
  for (const CudnnDescriptor& knob :
       config.linked(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR,
                     CUDNN_KNOB_TYPE_COUNTS)) {
    name += fmt::format(
        "-k{}={}",
        static_cast<int>(knob.get<cudnnBackendKnobType_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE)),
        knob.get<std::int64_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE));
  }
  return name;
}

/// Whether the engine keeps the contract's promises: the same bits every time, sums in fp32,
/// factors as precise as asked for. Winograd's and Fourier's transforms lose digits that plain sums
/// keep.
bool admissible(const CudnnDescriptor& engine, const ConvProblem& problem) {
  const auto notes = engine.get_all<cudnnBackendNumericalNote_t>(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                                                 CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  return std::none_of(notes.begin(), notes.end(), [&](cudnnBackendNumericalNote_t note) {
    switch (note) {
      case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
      case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
      case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:  // To half; tf32 does not count as that.
      case CUDNN_NUMERICAL_NOTE_FFT:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD:
        return true;
      case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
        return problem.type == DType::f32 && !problem.tf32;
      default:
        return false;
    }
  });
}

/// What the heuristics name, best first, as far as it is admissible.
std::vector<Candidate> candidates(const PlanDevice& gpu, const ConvGraph& graph,
                                  const ConvProblem& problem, FailureLog& failures) {
  std::vector<Candidate> result;
  if (!graph.supported()) return result;
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    CudnnDescriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristics.link(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph.get())
        .set(CUDNN_ATTR_ENGINEHEUR_MODE, mode);
    gpu.attach_to_heuristics(heuristics);
    if (!failures.succeeded(heuristics.try_finalize(), "an engine heuristic")) continue;
    for (CudnnDescriptor& config :
         heuristics.linked(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)) {
      const auto engines =
          config.linked(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1);
      if (engines.empty() || !admissible(engines.front(), problem)) continue;
      std::string name = name_of(engines.front(), config);
      const bool known = std::any_of(result.begin(), result.end(),
                                     [&](const Candidate& other) { return other.name == name; });
      if (!known) result.push_back({std::move(name), std::move(config)});
    }
  }
  return result;
}

/// The candidate that name_of named. Nothing where this cuDNN has no such engine or knob, or where
/// it is not admissible.
std::optional<Candidate> candidate_named(const PlanDevice& gpu, const ConvGraph& graph,
                                         const ConvProblem& problem, const std::string& name) {
  if (!graph.supported() || !name.starts_with(kNamePrefix)) return std::nullopt;
  // The number of the engine, then pairs of a knob's type and value.
  std::vector<std::int64_t> numbers;
  for (std::string_view rest = std::string_view(name).substr(kNamePrefix.size());;) {
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
    if (error != std::errc{}) return std::nullopt;
    numbers.push_back(number);
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    if (rest.empty()) break;
    const std::string_view separator = numbers.size() % 2 == 1 ? "-k" : "=";
    if (!rest.starts_with(separator)) return std::nullopt;
    rest.remove_prefix(separator.size());
  }
  if (numbers.size() % 2 == 0) return std::nullopt;

  CudnnDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  engine.link(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph.get());
  gpu.attach_to_engine(engine);
  const cudnnStatus_t known = engine.try_set(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, numbers[0]);
  if (known != CUDNN_STATUS_SUCCESS || engine.try_finalize() != CUDNN_STATUS_SUCCESS ||
      !admissible(engine, problem)) {
    return std::nullopt;
  }
  std::vector<CudnnDescriptor> knobs;
  for (std::size_t i = 1; i < numbers.size(); i += 2) {
    CudnnDescriptor& knob = knobs.emplace_back(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    knob.set(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, static_cast<cudnnBackendKnobType_t>(numbers[i]))
        .set(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, numbers[i + 1]);
    if (knob.try_finalize() != CUDNN_STATUS_SUCCESS) return std::nullopt;
  }
  CudnnDescriptor config(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  config.link(CUDNN_ATTR_ENGINECFG_ENGINE, engine);
  config.link_all(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, knobs);
  if (config.try_finalize() != CUDNN_STATUS_SUCCESS) return std::nullopt;
  return Candidate{name, std::move(config)};
}

/// The execution plan of a candidate, unless cuDNN cannot make it here or it needs more than
/// `workspace_bytes`.
std::optional<CudnnDescriptor> make_plan(const PlanDevice& gpu, const Candidate& candidate,
                                         std::size_t workspace_bytes, FailureLog& failures) {
  CudnnDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  plan.link(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, candidate.config);
  gpu.attach_to_plan(plan);
  if (!failures.succeeded(plan.try_finalize(), candidate.name.c_str())) return std::nullopt;
  const auto needed = plan.get<std::int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
  if (needed > static_cast<std::int64_t>(workspace_bytes)) return std::nullopt;
  return plan;
}

std::int64_t weight_count(const ConvProblem& problem) {
  return problem.out.c * problem.kernel.h * problem.kernel.w * (problem.in.c / problem.groups);
}

/// Bytes at the end of the workspace that the plan leaves to a bias of zeros, or to a gradient that
/// is converted or added afterwards. (Few engines can add themselves, and they would be others than
/// those that overwrite.)
std::size_t bytes_apart(const ConvProblem& problem) {
  std::int64_t count = 0;
  if (problem.pass == ConvPass::backward_weights) count = weight_count(problem);
  if (zero_bias(problem)) count = problem.out.c;
  return (static_cast<std::size_t>(count) * size_of(problem.type) + 255) / 256 * 256;
}

/// What the plan itself may use of the workspace; nothing where not even the rest fits.
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
    HandleOwner owner(handle, [](cudnnHandle_t made) { cudnn().destroy(made); });
    return owner;
  });
}

/// What the plans of one problem share.
struct Shared {
  Shared(const CudaContext& of, const ConvProblem& problem)
      : context(of), handle(shared_handle(of)), device(handle.get()), graph(device, problem) {}
  const CudaContext& context;
  HandleOwner handle;
  PlanDevice device;
  ConvGraph graph;
};

class CudnnPlan final : public ConvPlan {
 public:
  CudnnPlan(std::shared_ptr<const Shared> shared, const ConvProblem& problem, Candidate candidate,
            CudnnDescriptor plan)
      : shared_(std::move(shared)),
        p_(problem),
        candidate_(std::move(candidate)),
        plan_(std::move(plan)) {}

  void run(const ConvArgs& args) override {
    const CudaContext& context = shared_->context;
    const bool bf16 = p_.type == DType::bf16;
    const DevPtr apart = address(context.workspace) + *plan_room(context.workspace_bytes, p_);
    const bool gradient_apart =
        p_.pass == ConvPass::backward_weights && (bf16 || args.write == GradWrite::add);
    const DevPtr bias = bf16 ? address(args.bias16) : address(args.bias);
    const DevPtr gradient = address(args.dweight);
    if (zero_bias(p_)) {
      cuda_check(cudaMemsetAsync(device<void>(apart), 0, bytes_apart(p_), context.stream),
                 "cudaMemsetAsync");
    }
    bind({address(args.x), address(args.y), address(args.weight), zero_bias(p_) ? apart : bias,
          gradient_apart ? apart : gradient, address(context.workspace)});
    // Which may be a branch of the queue.
    cudnn_check(cudnn().set_stream(shared_->handle.get(), context.stream), "cudnnSetStream");
    cudnn_check(cudnn().execute(shared_->handle.get(), plan_.get(), pack_->get()),
                candidate_.name.c_str());
    if (gradient_apart) {
      add_gradient(context, gradient, apart, p_.type, weight_count(p_), args.write);
    }
  }
  std::string name() const override { return candidate_.name; }

 private:
  /// x, y, weight, bias, gradient, workspace.
  using Addresses = std::array<DevPtr, 6>;

  static DevPtr address(const void* memory) { return {reinterpret_cast<std::uintptr_t>(memory)}; }

  /// Tells cuDNN the addresses, once as long as they stay the same.
  void bind(const Addresses& addresses) {
    if (pack_ && addresses == bound_) return;
    constexpr std::array<std::int64_t, 5> kIds = {kX, kY, kWeight, kBias, kGradient};
    const bool gradient = p_.pass == ConvPass::backward_weights;
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
  Candidate candidate_;
  CudnnDescriptor plan_;
  std::optional<CudnnDescriptor> pack_;
  Addresses bound_ = {};
};

}  // namespace

std::vector<std::unique_ptr<ConvPlan>> make_cudnn_plans(const CudaContext& context,
                                                        const ConvProblem& problem, int most) {
  const auto shared = std::make_shared<const Shared>(context, problem);
  const std::optional<std::size_t> room = plan_room(context.workspace_bytes, problem);
  std::vector<std::unique_ptr<ConvPlan>> plans;
  if (!room) return plans;
  FailureLog failures = shared->graph.failures();
  for (Candidate& candidate : candidates(shared->device, shared->graph, problem, failures)) {
    if (static_cast<int>(plans.size()) >= most) break;
    std::optional<CudnnDescriptor> plan = make_plan(shared->device, candidate, *room, failures);
    if (!plan) continue;
    plans.push_back(
        std::make_unique<CudnnPlan>(shared, problem, std::move(candidate), std::move(*plan)));
  }
  if (plans.empty()) failures.raise();
  return plans;
}

std::unique_ptr<ConvPlan> make_cudnn_plan(const CudaContext& context, const ConvProblem& problem,
                                          const std::string& name) {
  const std::optional<std::size_t> room = plan_room(context.workspace_bytes, problem);
  // Other names must not load the library.
  if (!room || !name.starts_with(kNamePrefix)) return nullptr;
  const auto shared = std::make_shared<const Shared>(context, problem);
  std::optional<Candidate> candidate =
      candidate_named(shared->device, shared->graph, problem, name);
  if (!candidate) return nullptr;
  FailureLog failures;
  std::optional<CudnnDescriptor> plan = make_plan(shared->device, *candidate, *room, failures);
  if (!plan) return nullptr;
  return std::make_unique<CudnnPlan>(shared, problem, std::move(*candidate), std::move(*plan));
}

std::vector<std::string> cudnn_plan_names(const std::string& gpu, const ConvProblem& problem,
                                          std::size_t workspace_bytes, int most) {
  std::vector<std::string> names;
  const std::optional<std::size_t> room = plan_room(workspace_bytes, problem);
  if (!room) return names;
  const PlanDevice described(gpu);
  const ConvGraph graph(described, problem);
  FailureLog failures = graph.failures();
  for (const Candidate& candidate : candidates(described, graph, problem, failures)) {
    if (static_cast<int>(names.size()) >= most) break;
    if (make_plan(described, candidate, *room, failures)) names.push_back(candidate.name);
  }
  if (names.empty()) failures.raise();
  return names;
}

bool cudnn_has_plan(const std::string& gpu, const ConvProblem& problem, std::size_t workspace_bytes,
                    const std::string& name) {
  const std::optional<std::size_t> room = plan_room(workspace_bytes, problem);
  if (!room) return false;
  const PlanDevice described(gpu);
  const ConvGraph graph(described, problem);
  const std::optional<Candidate> candidate = candidate_named(described, graph, problem, name);
  FailureLog failures;
  return candidate && make_plan(described, *candidate, *room, failures);
}

}  // namespace dpt
