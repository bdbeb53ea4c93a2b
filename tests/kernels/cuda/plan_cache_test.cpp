// The file of timed choices, and the choices themselves.
#include "kernels/cuda/runtime/plan_cache.h"

#include <doctest/doctest.h>

#include <atomic>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "kernels/cuda/conv/conv_plan.h"
#include "tests/kernels/cases.h"
#include "tests/kernels/cuda/gpu.h"
#include "tests/support/backends.h"
#include "tests/support/temp_dir.h"

namespace dpt::testing {
namespace {

bool any(const std::string&) {
  return true;
}
std::string never() {
  FAIL("a kept choice was made again");
  return {};
}
std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}
void write(const std::filesystem::path& file, const std::string& text) {
  std::ofstream(file) << text;
}

TEST_CASE("a choice is kept for the next process, by machine and problem") {
  const TempDir dir;
  const auto file = std::filesystem::path(dir.path()) / "below" / "plans.json";
  {
    PlanCache cache(file);
    CHECK(cache.decide("GPU", "conv", any, [] { return "own"; }) == "own");
    CHECK(cache.decide("GPU", "conv", any, never) == "own");
    CHECK(cache.decide("GPU", "other", any, [] { return "cudnn:7"; }) == "cudnn:7");
    CHECK(cache.decide("other GPU", "conv", any, [] { return "cudnn:1"; }) == "cudnn:1");
  }
  PlanCache next(file);
  CHECK(next.decide("GPU", "conv", any, never) == "own");
  CHECK(next.decide("GPU", "other", any, never) == "cudnn:7");
  CHECK(next.decide("other GPU", "conv", any, never) == "cudnn:1");
  // Only the file and its lock remain.
  std::size_t files = 0;
  for ([[maybe_unused]] const auto& entry :
       std::filesystem::directory_iterator(dir.path() + "/below")) {
    ++files;
  }
  CHECK(files == 2);
}

TEST_CASE("a file that cannot be understood counts as empty and is written anew") {
  const TempDir dir;
  const auto file = dir.file("plans.json");
  for (const char* text :
       {"", "{", "[]", "17", R"({"format": 2, "machines": {"gpu": {"conv": "old"}}})",
        R"({"format": "3"})", R"({"format": 3})", R"({"format": 3, "machines": [1]})",
        R"({"format": 3, "machines": {"gpu": 3}})",
        R"({"format": 3, "machines": {"gpu": {"conv": 3}}})", "\xff\xfe\0garbage"}) {
    CAPTURE(text);
    write(file, text);
    CHECK(PlanCache(file).decide("GPU", "conv", any, [] { return "new"; }) == "new");
    CHECK(PlanCache(file).decide("GPU", "conv", any, never) == "new");
  }
}

TEST_CASE("a kept plan that is not usable any more is chosen anew") {
  const TempDir dir;
  const auto file = dir.file("plans.json");
  const auto not_old = [](const std::string& name) { return name != "old"; };
  PlanCache(file).decide("GPU", "conv", any, [] { return "old"; });
  CHECK(PlanCache(file).decide("GPU", "conv", not_old, [] { return "new"; }) == "new");
  CHECK(PlanCache(file).decide("GPU", "conv", any, never) == "new");
}

TEST_CASE("processes keep each other's choices, and the first one stands") {
  const TempDir dir;
  const auto file = dir.file("plans.json");
  PlanCache a(file), b(file);
  // Both read the file before either of them writes it.
  a.decide("GPU", "a", any, [] { return "1"; });
  b.decide("GPU", "b", any, [] { return "2"; });
  CHECK(a.decide("GPU", "same", any, [] { return "of a"; }) == "of a");
  CHECK(b.decide("GPU", "same", any, [] { return "of b"; }) == "of a");
  PlanCache c(file);
  CHECK(c.decide("GPU", "a", any, never) == "1");
  CHECK(c.decide("GPU", "b", any, never) == "2");
  CHECK(c.decide("GPU", "same", any, never) == "of a");
}

TEST_CASE("a choice that fails is not kept, and one that cannot be written stays in the process") {
  const TempDir dir;
  PlanCache cache(dir.file("plans.json"));
  CHECK_THROWS_AS(cache.decide("GPU", "conv", any, []() -> std::string { throw 1; }), int);
  CHECK(cache.decide("GPU", "conv", any, [] { return ""; }).empty());
  CHECK(cache.decide("GPU", "conv", any, [] { return "second"; }) == "second");
  PlanCache nowhere("/proc/no/such/folder/plans.json");
  CHECK(nowhere.decide("GPU", "conv", any, [] { return "here"; }) == "here");
  CHECK(nowhere.decide("GPU", "conv", any, never) == "here");
}

TEST_CASE("threads of a process share one choice") {
  const TempDir dir;
  const auto file = dir.file("plans.json");
  std::atomic<int> choices = 0, wrong = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const std::string name = PlanCache::of(file).decide("GPU", "conv", any, [&] {
        ++choices;
        return std::to_string(i);
      });
      if (name != PlanCache::of(file).decide("GPU", "conv", any, [] { return "late"; })) ++wrong;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(choices == 1);
  CHECK(wrong == 0);
}

ConvProblem problem(std::int64_t batch, SampleShape in, std::int64_t channels, Size2 kernel) {
  ConvProblem p;
  p.batch = batch;
  p.in = in;
  p.kernel = kernel;
  p.stride = p.dilation = {1, 1};
  p.padding = {0, 0};
  p.out = conv_shape(in, channels, kernel, p.stride, p.padding, p.dilation);
  p.tf32 = true;
  return p;
}

TEST_CASE("keys tell problems apart") {
  ConvProblem a = problem(2, {8, 8, 4}, 6, {3, 3});
  const std::string key = a.key();
  CHECK(key == "forward:n2:8x8x4>6x6x6:k3x3:s1x1:p0x0:d1x1:g1:tf32");
  a.bias = true;
  CHECK(a.key() == key + ":bias");
  a.bias = false;
  a.pass = Pass::backward_weights;
  CHECK(a.key() != key);
  a.pass = Pass::forward;
  a.type = DType::bf16;
  CHECK(a.key() != key);
  a.type = DType::f32;
  a.pool = ConvPool{PoolKind::max, {3, 3, 6}, 1.0F};
  CHECK(a.key() == key + ":max");
  a.pool->kind = PoolKind::average;
  CHECK(a.key() == key + ":average");
}

TEST_CASE("plans are chosen by a rule, or timed where a cache is given, and never in exact mode") {
  if (!have_gpu()) return;
  const TempDir dir;
  BackendOptions options;
  const ConvProblem lenet = problem(2, {13, 13, 20}, 50, {5, 5});
  const ConvProblem large = problem(256, {58, 58, 64}, 64, {3, 3});
  {
    const GPU gpu;
    CHECK(choose_conv_plan(gpu.context(), lenet)->name() == "image:tf32");
    const auto cudnn = make_cudnn_plans(gpu.context(), large, 1);
    if (!cudnn.empty()) {
      CHECK(choose_conv_plan(gpu.context(), large)->name() == cudnn.front()->name());
    }
  }
  options.plan_cache = dir.file("plans.json");
  const GPU gpu(options);
  const std::string chosen = choose_conv_plan(gpu.context(), lenet)->name();
  auto cache = nlohmann::json::parse(text_of(options.plan_cache));
  REQUIRE(cache["machines"].size() == 1);
  auto& plans = cache["machines"].front();
  CHECK(plans.size() == 1);
  CHECK(plans.at(lenet.key()) == chosen);

  // The next time, the file decides.
  const auto cudnn = make_cudnn_plans(gpu.context(), lenet, 1);
  if (cudnn.empty()) return;
  for (const std::string& name :
       {std::string("own:tf32"), std::string("image:tf32"), cudnn.front()->name()}) {
    plans[lenet.key()] = name;
    options.plan_cache = dir.file("of " + name.substr(0, 3));
    write(options.plan_cache, cache.dump());
    CHECK(choose_conv_plan(GPU(options).context(), lenet)->name() == name);
    options.exact = true;
    CHECK(choose_conv_plan(GPU(options).context(), lenet)->name() == "image:tf32");
    options.exact = false;
  }
}

TEST_CASE("with pooling inside only our own kernels are timed") {
  if (!have_gpu()) return;
  const TempDir dir;
  BackendOptions options;
  options.plan_cache = dir.file("plans.json");
  const GPU gpu(options);
  ConvProblem lenet = problem(2, {13, 13, 20}, 50, {5, 5});
  lenet.pool = ConvPool{PoolKind::average, {4, 4, 50}, 0.25F};
  for (const Pass pass : {Pass::forward, Pass::backward_data, Pass::backward_weights}) {
    lenet.pass = pass;
    const std::string name = choose_conv_plan(gpu.context(), lenet)->name();
    CHECK((name == "own:tf32" || name == "image:tf32"));
  }
  const auto cache = nlohmann::json::parse(text_of(options.plan_cache));
  REQUIRE(cache["machines"].size() == 1);
  CHECK(cache["machines"].front().size() == 3);
}

}  // namespace
}  // namespace dpt::testing
