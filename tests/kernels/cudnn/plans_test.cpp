// cuDNN's answers for dpt's graphs. It makes plans for GPUs that are only described to it, so this
// needs the library but no GPU.
#include <dlfcn.h>
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "kernels/base/error.h"
#include "kernels/cuda/conv/cudnn_conv.h"
#include "kernels/cuda/runtime/libraries.h"
#include "tests/kernels/cases.h"
#include "tests/support/described_gpu.h"
#include "tests/support/skip.h"

namespace dpt::testing {
namespace {

// Workspace size, the same as in tests/kernels/cuda/gpu.h. The tests that use that file rely on the
// results of this one.
constexpr std::size_t kWorkspace = std::size_t{32} << 20;

std::vector<std::string> plan_names(const std::string& gpu, const ConvProblem& problem,
                                    std::size_t workspace_bytes, int most) {
  std::vector<std::string> names;
  for (const CudnnPlanFacts& plan : describe_cudnn_plans(gpu, problem, workspace_bytes, most)) {
    names.push_back(plan.name);
  }
  return names;
}

ConvProblem problem_of(Conv2dDesc d, Pass pass, DType type, bool tf32) {
  d.type = type;
  d.tf32 = tf32;
  ConvProblem p = conv_problem(d, pass);
  p.bias = p.relu = false;  // Callers request bias and ReLU one by one.
  return p;
}

/// Returns null if a usable cuDNN is installed, otherwise the reason.
const char* no_cudnn() {
  static const std::string why = []() -> std::string {
    try {
      const auto version =
          reinterpret_cast<std::size_t (*)()>(dlsym(cudnn_library(), "cudnnGetVersion"));
      return version() >= 90800 ? "" : "cuDNN before 9.8 takes no descriptions of GPUs";
    } catch (const Error& error) {
      return error.what();
    }
  }();
  return why.empty() ? nullptr : why.c_str();
}

struct Kind {
  const char* name;
  DType type;
  bool tf32;
};
constexpr Kind kKinds[] = {
    {"fp32", DType::f32, false}, {"tf32", DType::f32, true}, {"bf16", DType::bf16, false}};

/// Returns problems for every pass and every fusion.
std::vector<ConvProblem> problems(const Conv2dDesc& d, const Kind& kind) {
  std::vector<ConvProblem> result;
  for (const Pass pass : {Pass::forward, Pass::backward_data, Pass::backward_weights}) {
    ConvProblem p = problem_of(d, pass, kind.type, kind.tf32);
    for (const bool bias : {false, true}) {
      for (const bool relu : {false, true}) {
        p.bias = bias;
        p.relu = relu;
        if (pass == Pass::forward || (!bias && !relu)) result.push_back(p);
      }
    }
  }
  return result;
}

void check_plans(const std::string& gpu, const Conv2dDesc& d) {
  for (const Kind& kind : kKinds) {
    for (const ConvProblem& p : problems(d, kind)) {
      INFO(text(d), " ", kind.name, " pass ", static_cast<int>(p.pass), " bias ", p.bias, " relu ",
           p.relu);
      const std::vector<std::string> names = plan_names(gpu, p, kWorkspace, 2);
      CHECK(!names.empty());
      CHECK(std::set<std::string>(names.begin(), names.end()).size() == names.size());
      for (const std::string& name : names) {
        INFO(name);
        CHECK(cudnn_has_plan(gpu, p, kWorkspace, name));
      }
    }
  }
}

TEST_CASE("cuDNN has plans for every convolution, and finds them again by name") {
  if (no_cudnn()) {
    testing::skip_test(no_cudnn());
    return;
  }
  for (const Conv2dDesc& d : conv_cases()) check_plans(kH200.text(), d);
  check_plans(kH200.text(), conv_case(256, {13, 13, 20}, 50, {5, 5}));
  check_plans(kA100.text(), conv_case(256, {13, 13, 20}, 50, {5, 5}));
}

TEST_CASE("a plan that the problem does not admit is not found, whatever a cache says") {
  if (no_cudnn()) {
    testing::skip_test(no_cudnn());
    return;
  }
  const Conv2dDesc d = conv_case(64, {56, 56, 64}, 64, {3, 3}, {1, 1}, {1, 1});
  const ConvProblem strict = problem_of(d, Pass::forward, DType::f32, false);
  const ConvProblem tf32 = problem_of(d, Pass::forward, DType::f32, true);
  const auto strict_names = plan_names(kH200.text(), strict, kWorkspace, 100);
  const auto tf32_names = plan_names(kH200.text(), tf32, kWorkspace, 100);
  // The first plan for tf32 runs on tensor cores.
  CHECK(std::find(strict_names.begin(), strict_names.end(), tf32_names.at(0)) ==
        strict_names.end());
  CHECK(cudnn_has_plan(kH200.text(), tf32, kWorkspace, tf32_names[0]));
  CHECK(!cudnn_has_plan(kH200.text(), strict, kWorkspace, tf32_names[0]));
  for (const char* name :
       {"", "cudnn:", "cudnn:eng", "cudnn:eng-1", "cudnn:eng99999", "cudnn:eng0-k", "cudnn:eng0-k2",
        "cudnn:eng0-k2=", "cudnn:eng0-k999=1", "cudnn:eng0x", "cudnn:eng0-k2=1-", "own:fp32"}) {
    INFO(name);
    CHECK(!cudnn_has_plan(kH200.text(), strict, kWorkspace, name));
  }
}

TEST_CASE("plans keep to the workspace that is left") {
  if (no_cudnn()) {
    testing::skip_test(no_cudnn());
    return;
  }
  const Conv2dDesc d = conv_case(64, {28, 28, 64}, 64, {3, 3}, {1, 1}, {1, 1});
  const ConvProblem p = problem_of(d, Pass::backward_weights, DType::f32, true);
  const std::size_t gradient = 64 * 9 * 64 * sizeof(float);
  const auto all = plan_names(kH200.text(), p, kWorkspace, 100);
  const auto some = plan_names(kH200.text(), p, gradient, 100);
  CHECK(some.size() < all.size());
  for (const std::string& name : some) {
    CHECK(std::find(all.begin(), all.end(), name) != all.end());
  }
  CHECK(plan_names(kH200.text(), p, gradient - 1, 100).empty());
}

TEST_CASE("with padded channels, the first convolution of ResNet-50 uses tensor cores in bf16") {
  if (no_cudnn()) {
    testing::skip_test(no_cudnn());
    return;
  }
  Conv2dDesc d = conv_case(256, {224, 224, 3}, 64, {7, 7}, {2, 2}, {3, 3});
  for (const DescribedGpu& gpu : kDescribedGpus) {
    CAPTURE(gpu.name);
    for (const Pass pass : {Pass::forward, Pass::backward_weights}) {
      const ConvProblem p = problem_of(d, pass, DType::bf16, false);
      const auto with_tensor_cores = [&](const ConvProblem& problem) {
        const auto plans = describe_cudnn_plans(gpu.text(), problem, kWorkspace, kMaxCudnnPlans);
        return std::any_of(plans.begin(), plans.end(),
                           [](const CudnnPlanFacts& plan) { return plan.tensor_cores; });
      };
      CHECK(!with_tensor_cores(p));
      CHECK(with_tensor_cores(padded_problem(p).value()));
    }
  }
}

TEST_CASE("an invalid description of a GPU is an error in cuDNN's words") {
  if (no_cudnn()) {
    testing::skip_test(no_cudnn());
    return;
  }
  const ConvProblem p =
      problem_of(conv_case(1, {8, 8, 8}, 8, {3, 3}), Pass::forward, DType::f32, false);
  std::string words;
  try {
    plan_names("{}", p, kWorkspace, 1);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::device);
    words = error.what();
  }
  CHECK(words.find("CUDNN_STATUS_") != std::string::npos);
}

}  // namespace
}  // namespace dpt::testing
