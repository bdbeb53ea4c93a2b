// Chooses between our own kernels and cuDNN's for one pass of a convolution.
#include "kernels/cuda/conv/conv_plan.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <utility>

#include "kernels/base/error.h"
#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/runtime/libraries.h"
#include "kernels/cuda/runtime/plan_cache.h"
#include "kernels/cuda/runtime/timing.h"

namespace dpt {
namespace {

const char* pass_name(Pass pass) {
  switch (pass) {
    case Pass::forward:
      return "forward";
    case Pass::backward_data:
      return "data";
    case Pass::backward_weights:
      return "weights";
  }
  return "?";
}

/// Returns the key under which a timed choice is valid: the GPU, the driver and the version of
/// cuDNN. cuDNN is opened to read its version even if one of dpt's kernels was chosen, because
/// another version may be faster. This takes milliseconds, once per GPU. A handle and the
/// heuristics take longer, but only candidates that are timed or chosen need them.
const std::string& conv_machine_key(const CudaContext& context) {
  static std::mutex mutex;
  static std::map<int, std::string> keys;
  const std::lock_guard lock(mutex);
  std::string& key = keys[context.device];
  if (key.empty()) key = machine_key(context) + " " + describe_cudnn();
  return key;
}

/// Times plans on scratch memory.
class Bench {
 public:
  Bench(const CudaContext& context, const ConvProblem& problem)
      : context_(context), p_(problem), timing_(context) {}

  /// Allocates the memory for these plans. Returns false if there is not enough.
  bool prepare(const std::vector<ConvPlan*>& plans) {
    const std::int64_t weights = p_.out.c * p_.kernel.h * p_.kernel.w * (p_.in.c / p_.groups);
    const std::size_t sums_bytes = column_sums_scratch(context_, rows(), p_.out.c);
    args_.x = timing_.make(p_.batch * p_.in.elements(), p_.type);
    args_.y =
        timing_.make(p_.pool ? p_.batch * p_.pool->out.elements() : rows() * p_.out.c, p_.type);
    args_.weight = timing_.make(weights, p_.type);
    args_.bias = static_cast<const float*>(timing_.make(p_.out.c, DType::f32));
    args_.bias16 = timing_.make(p_.out.c, DType::bf16);
    args_.dweight = static_cast<float*>(timing_.make(weights, DType::f32));
    args_.dbias = static_cast<float*>(timing_.make(p_.out.c, DType::f32));
    sums_scratch_ = timing_.make(static_cast<std::int64_t>(sums_bytes / 4) + 1, DType::f32);
    std::size_t scratch_bytes = 0;
    for (const ConvPlan* plan : plans) {
      scratch_bytes = std::max(scratch_bytes, plan->scratch_bytes());
    }
    if (scratch_bytes > 0) {
      args_.scratch = timing_.make(static_cast<std::int64_t>(scratch_bytes / 4), DType::f32);
      if (!args_.scratch) return false;
    }
    if (p_.pool) {
      args_.open = static_cast<std::uint8_t*>(
          timing_.make(p_.batch * p_.pool->out.elements() / 4 + 1, DType::f32));
      if (!args_.open) return false;
    }
    return args_.x && args_.y && args_.weight && args_.bias && args_.bias16 && args_.dweight &&
           args_.dbias && sums_scratch_;
  }

  /// Times each plan, including work that it leaves to other kernels.
  std::vector<float> times(const std::vector<ConvPlan*>& plans, std::string& failure,
                           std::string& uncaptured) {
    std::vector<float> times = timing_.times(
        plans.size(), [&](std::size_t i) { run(*plans[i]); }, failure);
    for (std::size_t i = 0; i < plans.size(); ++i) {
      if (timing_.uncaptured(i).empty()) continue;
      uncaptured = fmt::format("{} was timed with host launches: {}", plans[i]->name(),
                               timing_.uncaptured(i));
    }
    return times;
  }

 private:
  void run(ConvPlan& plan) {
    plan.run(args_);
    if (p_.pass != Pass::backward_weights || !p_.bias || plan.gives_dbias()) return;
    column_sums(context_, address(args_.y), p_.type, rows(), p_.out.c, address(args_.dbias),
                GradWrite::overwrite, address(sums_scratch_));
  }
  std::int64_t rows() const { return p_.batch * p_.out.h * p_.out.w; }
  static DevPtr address(const void* pointer) { return {reinterpret_cast<std::uintptr_t>(pointer)}; }

  const CudaContext& context_;
  const ConvProblem& p_;
  Timing timing_;
  ConvArgs args_;
  void* sums_scratch_ = nullptr;
};

/// The candidates for one problem. Those of cuDNN are created when first needed, because opening
/// cuDNN takes long. A plan that the cache names is created without asking cuDNN's heuristics. If
/// cuDNN fails or is missing, dpt's kernels are the only candidates, and the chosen plan's remark
/// reports it.
class Candidates {
 public:
  Candidates(const CudaContext& context, const ConvProblem& problem)
      : context_(context), problem_(problem), own_(make_own_plans(context, problem)) {}

  bool has(const std::string& name) {
    if (context_.avoided.contains(name)) return false;
    if (named(own_, name)) return true;
    if (!cudnn_can()) return false;
    try {
      named_ = name.starts_with(kPaddedPrefix) ? named_padded(name.substr(kPaddedPrefix.size()))
                                               : make_cudnn_plan(context_, problem_, name);
    } catch (const Error&) {
      named_ = nullptr;  // The choice that follows will fail again and report it.
    }
    return named_ != nullptr;
  }

  std::unique_ptr<ConvPlan> take(const std::string& name) {
    std::unique_ptr<ConvPlan> plan = find(name);
    if (plan) plan->set_remark(failure_.empty() ? uncaptured_ : "another failed: " + failure_);
    return plan;
  }

  /// Chooses by the fixed rule.
  std::string by_rule() {
    const bool own_is_better = own_convolution_is_better(problem_);
    for (const bool even_avoided : {false, true}) {
      if (!is_small_convolution(problem_)) {
        if (const ConvPlan* plan = first(padded(), even_avoided)) return plan->name();
      }
      if (own_is_better) {
        if (const ConvPlan* plan = first(own_, even_avoided)) return plan->name();
      }
      if (const ConvPlan* plan = first(cudnn(), even_avoided)) return plan->name();
      if (const ConvPlan* plan = first(own_, even_avoided)) return plan->name();
    }
    fail(ErrorKind::device,
         "{}: neither dpt's own kernels nor cuDNN can run the convolution {}{}{}", context_.name,
         problem_.key(), failure_.empty() ? "" : ": ", failure_);
  }

  /// Chooses by timing. Returns an empty name if the result is not reliable, because something
  /// failed or memory was insufficient.
  std::string fastest() {
    std::vector<ConvPlan*> plans;
    for (Plans* all : {&own_, &cudnn(), &padded()}) {
      for (auto& plan : *all) {
        if (!context_.avoided.contains(plan->name())) plans.push_back(plan.get());
      }
    }
    if (plans.empty() || !failure_.empty()) return {};
    if (plans.size() == 1) return plans[0]->name();
    std::vector<float> times;
    {
      Bench bench(context_, problem_);
      if (!bench.prepare(plans)) return {};
      times = bench.times(plans, failure_, uncaptured_);
    }
    const auto first = std::min_element(times.begin(), times.end());
    const std::string name = plans[first - times.begin()]->name();
    if (failure_.empty()) return name;
    // Remove failed candidates. If fewer than two are left, the fixed rule decides.
    const auto failed = [&](const std::unique_ptr<ConvPlan>& plan) {
      const auto at = std::find(plans.begin(), plans.end(), plan.get()) - plans.begin();
      return std::isinf(times[at]);
    };
    const auto left =
        std::count_if(times.begin(), times.end(), [](float time) { return !std::isinf(time); });
    std::erase_if(own_, failed);
    std::erase_if(cudnn_, failed);
    std::erase_if(padded_, failed);
    return left > 1 ? name : std::string();
  }

 private:
  std::unique_ptr<ConvPlan> find(const std::string& name) {
    if (auto* own = named(own_, name)) return std::move(*own);
    if (named_ && named_->name() == name) return std::move(named_);
    for (Plans* all : {&cudnn(), &padded()}) {
      if (auto* plan = named(*all, name)) return std::move(*plan);
    }
    return nullptr;
  }

  using Plans = std::vector<std::unique_ptr<ConvPlan>>;
  /// Returns the first plan, or null. Skips avoided plans unless `even_avoided`.
  const ConvPlan* first(const Plans& plans, bool even_avoided) const {
    for (const auto& plan : plans) {
      if (even_avoided || !context_.avoided.contains(plan->name())) return plan.get();
    }
    return nullptr;
  }
  static std::unique_ptr<ConvPlan>* named(Plans& plans, const std::string& name) {
    for (auto& plan : plans) {
      if (plan->name() == name) return &plan;
    }
    return nullptr;
  }
  bool cudnn_can() const { return !problem_.pool; }

  Plans& cudnn() {
    if (std::exchange(asked_, true) || !cudnn_can()) return cudnn_;
    try {
      cudnn_ = make_cudnn_plans(context_, problem_, kMaxCudnnPlans);
    } catch (const Error& error) {
      if (own_.empty()) throw;
      failure_ = error.what();
    }
    return cudnn_;
  }

  /// Returns the padded plans that use tensor cores; none if one of cuDNN's plans for the problem
  /// itself does.
  Plans& padded() {
    const std::optional<ConvProblem> problem = padded_problem(problem_);
    if (!problem || std::exchange(asked_padded_, true)) return padded_;
    for (const auto& plan : cudnn()) {
      if (plan->uses_tensor_cores()) return padded_;
    }
    if (!failure_.empty()) return padded_;
    try {
      for (auto& plan : make_cudnn_plans(context_, *problem, kMaxCudnnPlans)) {
        if (!plan->uses_tensor_cores()) continue;
        padded_.push_back(make_padded_conv(context_, problem_, std::move(plan)));
      }
    } catch (const Error& error) {
      if (own_.empty()) throw;
      failure_ = error.what();
    }
    return padded_;
  }
  std::unique_ptr<ConvPlan> named_padded(const std::string& inner_name) const {
    const std::optional<ConvProblem> problem = padded_problem(problem_);
    auto inner = problem ? make_cudnn_plan(context_, *problem, inner_name) : nullptr;
    return inner ? make_padded_conv(context_, problem_, std::move(inner)) : nullptr;
  }

  const CudaContext& context_;
  const ConvProblem& problem_;
  Plans own_, cudnn_, padded_;
  std::unique_ptr<ConvPlan> named_;
  bool asked_ = false, asked_padded_ = false;
  std::string failure_;     ///< error that excluded a candidate
  std::string uncaptured_;  ///< message about a candidate that was timed with host launches
};

}  // namespace

std::string ConvPlan::described() const {
  return remark_.empty() ? name() : fmt::format("{} ({})", name(), remark_);
}

ConvProblem conv_problem(const Conv2dDesc& d, Pass pass) {
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
  problem.bias = d.bias && pass != Pass::backward_data;
  problem.relu = d.relu && pass == Pass::forward;
  return problem;
}

std::string ConvProblem::key() const {
  const auto pair = [](const Size2& s) { return fmt::format("{}x{}", s.h, s.w); };
  return fmt::format("{}:n{}:{}x{}x{}>{}x{}x{}:k{}:s{}:p{}:d{}:g{}:{}{}{}", pass_name(pass), batch,
                     in.h, in.w, in.c, out.h, out.w, out.c, pair(kernel), pair(stride),
                     pair(padding), pair(dilation), groups,
                     type == DType::f32 && tf32 ? "tf32" : name_of(type), bias ? ":bias" : "",
                     relu ? ":relu" : "") +
         (!pool                         ? ""
          : pool->kind == PoolKind::max ? ":max"
                                        : ":average");
}

// dpt's kernels are better for:
//  - Few or odd numbers of channels. cuDNN's tensor core kernels load 16 bytes of channels at a
//    time; if the channels do not fill 16 bytes, cuDNN first copies the tensors into padded ones.
//    Below 16 channels, half of the kernels' tiles is padding.
//  - Small problems, for which dpt needs only one kernel or two.
// cuDNN is better for all others, and for groups, which dpt treats as separate convolutions.
bool own_convolution_is_better(const ConvProblem& p) {
  const std::int64_t pack = p.type == DType::bf16 ? 8 : 4;
  if (p.groups > 1) return false;
  return p.in.c < 16 || p.out.c < 16 || p.in.c % pack != 0 || p.out.c % pack != 0 ||
         is_small_convolution(p);
}

// 2 GFLOP take about 10 us on a large GPU.
bool is_small_convolution(const ConvProblem& p) {
  const std::int64_t terms = p.kernel.h * p.kernel.w * (p.in.c / p.groups);
  const double products =
      static_cast<double>(p.batch * p.out.elements()) * static_cast<double>(terms);
  return products < 1e9;
}

std::vector<std::unique_ptr<ConvPlan>> make_own_plans(const CudaContext& context,
                                                      const ConvProblem& problem) {
  std::vector<std::unique_ptr<ConvPlan>> plans;
  for (const auto make : {make_image_conv, make_implicit_gemm}) {
    if (auto plan = make(context, problem)) plans.push_back(std::move(plan));
  }
  return plans;
}

std::unique_ptr<ConvPlan> choose_conv_plan(const CudaContext& context, const ConvProblem& problem) {
  Candidates candidates(context, problem);
  const BackendOptions& options = context.options;
  if (options.exact || options.plan_cache.empty()) return candidates.take(candidates.by_rule());
  const std::string name =
      PlanCache::of(options.plan_cache)
          .decide(
              problem.pool ? machine_key(context) : conv_machine_key(context), problem.key(),
              [&](const std::string& kept) { return candidates.has(kept); },
              [&] { return candidates.fastest(); });
  return candidates.take(name.empty() ? candidates.by_rule() : name);
}

}  // namespace dpt
