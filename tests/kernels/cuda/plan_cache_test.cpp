// The file of timed choices, and the choices themselves.
#include "kernels/cuda/runtime/plan_cache.h"

#include <doctest/doctest.h>

#include <atomic>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "kernels/cuda/conv/conv_plan.h"
#include "kernels/devices.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/cases.h"
#include "tests/kernels/cuda/gpu.h"
#include "tests/support/backends.h"
#include "tests/support/close.h"
#include "tests/support/op_runner.h"
#include "tests/support/temp_dir.h"
#include "tests/support/text.h"

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

/// Returns the first convolution of a network for images of 224 x 224.
ConvProblem stem(std::int64_t batch, Pass pass) {
  ConvProblem p;
  p.pass = pass;
  p.type = DType::bf16;
  p.batch = batch;
  p.in = {224, 224, 3};
  p.kernel = {7, 7};
  p.stride = {2, 2};
  p.padding = {3, 3};
  p.dilation = {1, 1};
  p.out = conv_shape(p.in, 64, p.kernel, p.stride, p.padding, p.dilation);
  return p;
}

TEST_CASE("the channels of a network's images are padded if tensor cores then run the product") {
  if (!have_gpu()) return;
  const GPU gpu;
  const auto chosen = [&](const ConvProblem& p) {
    return choose_conv_plan(gpu.context(), p)->name();
  };
  for (const Pass pass : {Pass::forward, Pass::backward_weights}) {
    const ConvProblem p = stem(256, pass);
    const auto inner = make_cudnn_plans(gpu.context(), *padded_problem(p), 1);
    if (inner.empty()) return;
    CHECK(chosen(p) == "padded:" + inner.front()->name());
    // x takes 16 bytes a pixel, a weight or its gradient 16 or 32.
    const std::size_t taps = 64 * 7 * 7;
    CHECK(choose_conv_plan(gpu.context(), p)->scratch_bytes() ==
          256 * 224 * 224 * 16 + taps * 8 * (pass == Pass::forward ? 2 : 4));
    // The copy that cuDNN makes for its tensor cores fits into the workspace.
    CHECK(chosen(stem(32, pass)).starts_with("own:"));
    // Small problems run in fewer kernels.
    CHECK(chosen(stem(1, pass)).starts_with("own:"));
  }
}

TEST_CASE("channels are padded only if they are few and tensor cores multiply them") {
  ConvProblem p = stem(256, Pass::forward);
  CHECK(padded_problem(p)->in.c == 8);
  CHECK(padded_problem(p)->key() ==
        "forward:n256:224x224x8>112x112x64:k7x7:s2x2:p3x3:d1x1:g1:bf16");
  const auto padded = [&](auto change) {
    ConvProblem changed = p;
    change(changed);
    const auto result = padded_problem(changed);
    return result ? result->in.c : 0;
  };
  CHECK(padded([](ConvProblem& c) { c.pass = Pass::backward_weights; }) == 8);
  CHECK(padded([](ConvProblem& c) { c.in.c = 7; }) == 8);
  CHECK(padded([](ConvProblem& c) { c.in.c = 8; }) == 0);
  CHECK(padded([](ConvProblem& c) { c.pass = Pass::backward_data; }) == 0);
  CHECK(padded([](ConvProblem& c) { c.groups = 3; }) == 0);
  CHECK(padded([](ConvProblem& c) { c.pool = ConvPool{PoolKind::max, {56, 56, 64}, 1.0F}; }) == 0);
  p.type = DType::f32;
  CHECK(padded([](ConvProblem&) {}) == 0);
  p.tf32 = true;
  CHECK(padded([](ConvProblem&) {}) == 4);
  CHECK(padded([](ConvProblem& c) { c.in.c = 4; }) == 0);
}

TEST_CASE("a convolution with cached padded plans agrees with the reference") {
  if (!have_gpu()) return;
  for (const bool pool : {false, true}) {
    CAPTURE(pool);
    const TempDir dir;
    BackendOptions options;
    options.plan_cache = dir.file("plans.json");
    Conv2dDesc d = conv_case(3, {15, 14, 3}, 16, {7, 7}, {2, 2}, {3, 3});
    if (pool) d = with_pool(d, PoolKind::max, {3, 3}, {2, 2});
    d.tf32 = d.bias = d.relu = d.training = true;
    d.input_gradient = false;
    const auto first = make_backend(parse_device("cuda:0"), options)->make(d);
    auto cache = nlohmann::json::parse(text_of(options.plan_cache));
    for (const Pass pass : {Pass::forward, Pass::backward_weights}) {
      const ConvProblem p = conv_problem(d, pass);
      const auto inner = make_cudnn_plans(GPU().context(), *padded_problem(p), 1);
      if (inner.empty()) return;
      for (auto& machine : cache["machines"]) machine[p.key()] = "padded:" + inner.front()->name();
    }
    options.plan_cache = dir.file("padded.json");
    write(options.plan_cache, cache.dump());
    const auto backend = make_backend(parse_device("cuda:0"), options);
    const auto op = backend->make(d);
    INFO(op->implementation());
    CHECK(contains(op->implementation(), "forward padded:"));
    CHECK(contains(op->implementation(), "weights padded:"));
    const auto values = [](std::int64_t count, std::uint64_t seed) {
      return floats(as<Bf16>(random_values(count, seed)));  // exact in tf32
    };
    const std::vector<float> x = values(d.batch * d.in.elements(), 1),
                             weight = values(weight_count(d), 2),
                             bias = random_values(d.conv_out.c, 3),
                             dy = values(d.batch * d.out.elements(), 4);
    OpRunner runner(*backend, *op, x, weight, bias, d.batch * d.out.elements());
    check_close("y", runner.forward(),
                reference::conv2d(d, to_double(x), to_double(weight), to_double(bias)), 2e-5);
    const auto expected = reference::conv2d_backward(d, to_double(x), to_double(weight),
                                                     to_double(bias), to_double(dy));
    const OpResult result = runner.backward(dy);
    // tf32 rounds the gradient.
    check_close("dweight", result.dweight, expected.weight, 0x1p-9);
    check_close("dbias", result.dbias, expected.bias, 2e-5);
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
