// Chooses between our own kernels and cuDNN's for one pass of a convolution.
#include "kernels/cuda/conv_plan.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "kernels/common/bf16.h"
#include "kernels/common/philox.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/libraries.h"
#include "kernels/cuda/plan_cache.h"

namespace dpt {
namespace {

constexpr int kMostCudnnPlans = 6;

const char* pass_name(ConvPass pass) {
  switch (pass) {
    case ConvPass::forward:
      return "forward";
    case ConvPass::backward_data:
      return "data";
    case ConvPass::backward_weights:
      return "weights";
  }
  return "?";
}

/// What makes a timed choice valid: the card and the versions of everything that runs on it.
std::string machine_key(const CudaContext& context) {
  int driver = 0, runtime = 0;
  cuda_check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  cuda_check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  return fmt::format("{} sm_{}{} driver {} runtime {} {}", context.card, context.compute_major,
                     context.compute_minor, driver, runtime, describe_cudnn());
}

/// Device memory and events of one timing, freed by its end.
class Bench {
 public:
  Bench(const CudaContext& context, const ConvProblem& problem)
      : context_(context), problem_(problem) {}
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;
  ~Bench() {
    cudaStreamSynchronize(context_.stream);
    for (void* memory : memory_) cudaFree(memory);
    if (begin_) cudaEventDestroy(begin_);
    if (end_) cudaEventDestroy(end_);
  }

  /// False if the memory does not suffice.
  bool prepare() {
    const ConvProblem& p = problem_;
    const std::int64_t weights = p.out.c * p.kernel.h * p.kernel.w * (p.in.c / p.groups);
    const std::int64_t rows = p.batch * p.out.h * p.out.w;
    sums_scratch_bytes_ = column_sums_scratch(context_, rows, p.out.c);
    void *x = nullptr, *y = nullptr, *weight = nullptr, *bias = nullptr, *dweight = nullptr,
         *dbias = nullptr;
    if (!make(x, p.batch * p.in.elements(), p.type) || !make(y, rows * p.out.c, p.type) ||
        !make(weight, weights, p.type) || !make(bias, p.out.c, DType::f32) ||
        !make(dweight, weights, DType::f32) || !make(dbias, p.out.c, DType::f32) ||
        !make(sums_scratch_, static_cast<std::int64_t>(sums_scratch_bytes_ / 4) + 1, DType::f32)) {
      return false;
    }
    args_.x = x;
    args_.y = y;
    args_.weight = weight;
    args_.bias = static_cast<const float*>(bias);
    args_.dweight = static_cast<float*>(dweight);
    args_.dbias = static_cast<float*>(dbias);
    cuda_check(cudaEventCreate(&begin_), "cudaEventCreate");
    cuda_check(cudaEventCreate(&end_), "cudaEventCreate");
    return true;
  }

  /// Milliseconds of kRuns runs, with what has to be done besides the plan.
  float time(ConvPlan& plan) {
    cuda_check(cudaEventRecord(begin_, context_.stream), "cudaEventRecord");
    for (int i = 0; i < kRuns; ++i) run(plan);
    cuda_check(cudaEventRecord(end_, context_.stream), "cudaEventRecord");
    cuda_check(cudaEventSynchronize(end_), "cudaEventSynchronize");
    float milliseconds = 0;
    cuda_check(cudaEventElapsedTime(&milliseconds, begin_, end_), "cudaEventElapsedTime");
    return milliseconds;
  }

 private:
  static constexpr int kRuns = 5;

  void run(ConvPlan& plan) {
    plan.run(args_);
    const ConvProblem& p = problem_;
    if (p.pass != ConvPass::backward_weights || !p.bias || plan.gives_dbias()) return;
    column_sums(context_, address(args_.y), p.type, p.batch * p.out.h * p.out.w, p.out.c,
                address(args_.dbias), GradWrite::overwrite, address(sums_scratch_));
  }
  static DevPtr address(const void* pointer) { return {reinterpret_cast<std::uintptr_t>(pointer)}; }

  /// Memory with random numbers in [-1, 1), the same ones again and again: power and so clocks
  /// depend on the bits, and zeros would be too kind.
  bool make(void*& memory, std::int64_t count, DType type) {
    const std::size_t bytes = static_cast<std::size_t>(count) * size_of(type);
    if (cudaMalloc(&memory, bytes) != cudaSuccess) {
      cudaGetLastError();
      return false;
    }
    memory_.push_back(memory);
    std::vector<std::byte> pattern(std::min<std::size_t>(bytes, std::size_t{1} << 18));
    for (std::size_t i = 0; i < pattern.size() / size_of(type); ++i) {
      const philox::Block block = philox::block(1, philox::Use::synthesis, i, 0);
      const float value = philox::uniform(block.v[0]) * 2 - 1;
      if (type == DType::bf16) {
        reinterpret_cast<Bf16*>(pattern.data())[i] = to_bf16(value);
      } else {
        reinterpret_cast<float*>(pattern.data())[i] = value;
      }
    }
    for (std::size_t at = 0; at < bytes; at += pattern.size()) {
      cuda_check(cudaMemcpyAsync(static_cast<std::byte*>(memory) + at, pattern.data(),
                                 std::min(pattern.size(), bytes - at), cudaMemcpyHostToDevice,
                                 context_.stream),
                 "cudaMemcpyAsync");
    }
    // The pattern must outlive the copies.
    cuda_check(cudaStreamSynchronize(context_.stream), "cudaStreamSynchronize");
    return true;
  }

  const CudaContext& context_;
  const ConvProblem& problem_;
  std::vector<void*> memory_;
  ConvArgs args_;
  void* sums_scratch_ = nullptr;
  std::size_t sums_scratch_bytes_ = 0;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

/// The candidates for one problem, made when they are first needed: opening cuDNN takes long. What
/// the cache names is made without asking cuDNN's heuristics.
class Candidates {
 public:
  Candidates(const CudaContext& context, const ConvProblem& problem)
      : context_(context), problem_(problem), own_(make_implicit_gemm(context, problem)) {}

  bool has(const std::string& name) {
    if (own_ && own_->name() == name) return true;
    named_ = make_cudnn_plan(context_, problem_, name);
    return named_ != nullptr;
  }

  std::unique_ptr<ConvPlan> take(const std::string& name) {
    if (own_ && own_->name() == name) return std::move(own_);
    if (named_ && named_->name() == name) return std::move(named_);
    for (auto& plan : cudnn()) {
      if (plan->name() == name) return std::move(plan);
    }
    return nullptr;
  }

  /// By the fixed rule.
  std::string by_rule() {
    if (own_ && (own_convolution_is_better(problem_) || cudnn().empty())) return own_->name();
    if (!cudnn().empty()) return cudnn().front()->name();
    fail(ErrorKind::device, "{}: neither dpt's own kernels nor cuDNN can run the convolution {}",
         context_.name, problem_.key());
  }

  /// By timing; by the rule where there is nothing to choose or no memory to time with.
  std::string fastest() {
    std::vector<ConvPlan*> plans;
    if (own_) plans.push_back(own_.get());
    for (auto& plan : cudnn()) plans.push_back(plan.get());
    Bench bench(context_, problem_);
    if (plans.size() < 2 || !bench.prepare()) return by_rule();
    for (ConvPlan* plan : plans) bench.time(*plan);  // warm-up
    std::vector<float> best(plans.size(), std::numeric_limits<float>::infinity());
    // Rounds over all of them, so that a disturbance does not fall on one alone.
    for (int round = 0; round < 5; ++round) {
      for (std::size_t i = 0; i < plans.size(); ++i) {
        best[i] = std::min(best[i], bench.time(*plans[i]));
      }
    }
    const auto first = std::min_element(best.begin(), best.end());
    return plans[static_cast<std::size_t>(first - best.begin())]->name();
  }

 private:
  std::vector<std::unique_ptr<ConvPlan>>& cudnn() {
    if (!asked_) cudnn_ = make_cudnn_plans(context_, problem_, kMostCudnnPlans);
    asked_ = true;
    return cudnn_;
  }

  const CudaContext& context_;
  const ConvProblem& problem_;
  std::unique_ptr<ConvPlan> own_, named_;
  std::vector<std::unique_ptr<ConvPlan>> cudnn_;
  bool asked_ = false;
};

}  // namespace

std::string ConvProblem::key() const {
  const auto pair = [](const Size2& s) { return fmt::format("{}x{}", s.h, s.w); };
  return fmt::format("{}:n{}:{}x{}x{}>{}x{}x{}:k{}:s{}:p{}:d{}:g{}:{}{}{}", pass_name(pass), batch,
                     in.h, in.w, in.c, out.h, out.w, out.c, pair(kernel), pair(stride),
                     pair(padding), pair(dilation), groups,
                     type == DType::f32 && tf32 ? "tf32" : name_of(type), bias ? ":bias" : "",
                     relu ? ":relu" : "");
}

//  - Few or odd numbers of channels: cuDNN's tensor core kernels load 16 bytes of channels at a
//    time; for others it copies the tensors into padded ones first. Below 16 channels half of
//    their tiles is padding.
//  - Small problems are over before a helper kernel of cuDNN's has started: ours are one kernel,
//    or two. 2 GFLOP take about 10 us of a large card.
// cuDNN is better at the rest, and at groups, which ours treat as convolutions of their own.
bool own_convolution_is_better(const ConvProblem& p) {
  const std::int64_t pack = p.type == DType::bf16 ? 8 : 4;
  const std::int64_t group_in = p.in.c / p.groups;
  const double flops = 2.0 * static_cast<double>(p.batch * p.out.elements()) *
                       static_cast<double>(p.kernel.h * p.kernel.w * group_in);
  if (p.groups > 1) return false;
  return p.in.c < 16 || p.out.c < 16 || p.in.c % pack != 0 || p.out.c % pack != 0 || flops < 2e9;
}

std::unique_ptr<ConvPlan> choose_conv_plan(const CudaContext& context, const ConvProblem& problem) {
  Candidates candidates(context, problem);
  const BackendOptions& options = context.options;
  if (options.exact || options.plan_cache.empty()) return candidates.take(candidates.by_rule());
  return candidates.take(PlanCache::of(options.plan_cache)
                             .decide(
                                 machine_key(context), problem.key(),
                                 [&](const std::string& name) { return candidates.has(name); },
                                 [&] { return candidates.fastest(); }));
}

}  // namespace dpt
