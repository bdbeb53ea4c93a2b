// Linear layers on a GPU in the types that only GPUs have, and with many rows. The tests of all
// backends cover fp32 with few rows.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kernels/common/bf16.h"
#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/ops.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/cuda/gpu.h"
#include "tests/support/backends.h"
#include "tests/support/close.h"
#include "tests/support/op_runner.h"
#include "tests/support/temp_dir.h"

namespace dpt::testing {
namespace {

struct Input {
  std::vector<float> x, weight, bias, dy;
};
struct Output {
  std::vector<float> y, dx, dweight, dbias, dweight_twice, dbias_twice;
};

/// Returns numbers that T holds exactly, so that only the arithmetic can introduce errors.
template <class T>
Input random_input(const LinearDesc& d) {
  const auto values = [](std::int64_t count, std::uint64_t seed) {
    return floats(as<T>(random_values(count, seed)));
  };
  return {values(d.batch * d.in, 1), values(d.in * d.out, 2), values(d.bias ? d.out : 0, 3),
          values(d.batch * d.out, 4)};
}

/// Runs forward, backward, and a backward that adds. Memory that backward must not need is absent.
template <class T>
Output run(const GPU& gpu, const LinearDesc& d, const Input& in) {
  const auto op = make_cuda_op(gpu.context(), d);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> no_y(in.dy.size(), nan), no_x(in.x.size(), nan);
  const GpuArray<T> x(gpu, as<T>(in.x)), weight(gpu, as<T>(in.weight)), y(gpu, as<T>(no_y)),
      dx(gpu, as<T>(no_x));
  const GpuArray<Bf16> bias16(gpu, as<Bf16>(in.bias));
  const GpuArray<float> bias(gpu, in.bias), dweight(gpu, in.weight), dbias(gpu, in.bias),
      scratch(gpu, std::vector<float>(op->scratch_bytes() / sizeof(float) + 16, nan));
  OpArgs args;
  args.x = address(x.get());
  args.y = address(y.get());
  ParamArgs &of_weight = args.params[WeightAndBias::kWeight],
            &of_bias = args.params[WeightAndBias::kBias];
  (d.type == DType::bf16 ? of_weight.bf16 : of_weight.f32) = address(weight.get());
  of_bias.f32 = address(bias.get());
  if (d.type == DType::bf16) of_bias.bf16 = address(bias16.get());
  args.dx = address(dx.get());
  of_weight.gradient = address(dweight.get());
  of_bias.gradient = address(dbias.get());
  args.scratch = address(scratch.get());
  op->forward(args);
  Output out;
  out.y = floats(y.values());
  const auto backward = [&](GradWrite write) {
    const GpuArray<T> dy(gpu, as<T>(in.dy));
    args.dy = address(dy.get());
    args.write = write;
    op->backward(args);
    cuda_check(cudaStreamSynchronize(gpu.context().stream), "cudaStreamSynchronize");
  };
  backward(GradWrite::overwrite);
  out.dx = floats(dx.values());
  out.dweight = dweight.values();
  out.dbias = dbias.values();
  backward(GradWrite::add);
  out.dweight_twice = dweight.values();
  out.dbias_twice = dbias.values();
  // The memory after the requested scratch does not belong to the operation.
  const std::vector<float> past_end = scratch.values();
  for (std::size_t i = past_end.size() - 15; i < past_end.size(); ++i)
    CHECK(std::isnan(past_end[i]));
  return out;
}

std::vector<double> twice(std::vector<double> values) {
  for (double& value : values) value *= 2;
  return values;
}

/// Returns the tolerance of a sum of this many exact products in fp32 on tensor cores, which
/// truncate about 2^-23 of the largest in each instruction of at least 8 products.
double truncation(std::int64_t products) {
  return static_cast<double>(products) / 8 * 0x1p-23;
}

/// Checks a layer. Tolerances are relative to the largest result: `factors` for rounding the
/// factors and sums, `stored` for the additional rounding of an activation. On tensor cores, they
/// grow with the number of products in a sum.
template <class T>
void check_linear(const GPU& gpu, const LinearDesc& d, double factors, double stored) {
  const std::string name =
      fmt::format("{}{}: {} -> {}, batch {}{}{}", name_of(d.type), d.tf32 ? ", tf32" : "", d.in,
                  d.out, d.batch, d.bias ? ", bias" : "", d.relu ? ", relu" : "");
  INFO(name);
  const Input in = random_input<T>(d);
  const auto x = to_double(in.x), weight = to_double(in.weight), bias = to_double(in.bias);
  const auto y = reference::linear(d, x, weight, bias);
  const Output got = run<T>(gpu, d, in);
  // The GPU's own y decides where ReLU stops a gradient: near 0 its sign depends on rounding.
  std::vector<double> dy = to_double(in.dy);
  for (std::size_t i = 0; i < dy.size(); ++i) {
    if (d.relu && got.y[i] <= 0) dy[i] = 0;
  }
  LinearDesc linear = d;
  linear.relu = false;
  const auto gradients = reference::linear_backward(linear, x, weight, bias, dy);
  const auto of_sum = [&](std::int64_t products) {
    return factors + (d.tf32 || d.type == DType::bf16 ? truncation(products) : 0);
  };
  check_close("y", got.y, y, of_sum(d.in) + stored);
  check_close("dx", got.dx, gradients.x, of_sum(d.out) + stored);
  check_close("dweight", got.dweight, gradients.weight, of_sum(d.batch));
  check_close("dbias", got.dbias, gradients.bias, 5e-6);
  check_close("dweight twice", got.dweight_twice, twice(gradients.weight), of_sum(d.batch));
  check_close("dbias twice", got.dbias_twice, twice(gradients.bias), 5e-6);
}

template <class T>
void check_every_fusion(DType type, bool tf32, double factors, double stored) {
  const GPU gpu;
  const std::int64_t shapes[][3] = {{5, 7, 3}, {1, 33, 65}, {256, 80, 24}, {2000, 20, 10}};
  for (const auto& [batch, in, out] : shapes) {
    for (const bool bias : {true, false}) {
      for (const bool relu : {true, false}) {
        LinearDesc d;
        d.batch = batch;
        d.in = in;
        d.out = out;
        d.bias = bias;
        d.relu = relu;
        d.type = type;
        d.tf32 = tf32;
        check_linear<T>(gpu, d, factors, stored);
      }
    }
  }
}

TEST_CASE("linear layers in fp32, over many rows") {
  if (!have_gpu()) return;
  check_every_fusion<float>(DType::f32, false, 5e-6, 0);
}

TEST_CASE("linear layers in tf32") {
  if (!have_gpu()) return;
  // Rounding or truncating the factors loses up to 2^-10.
  check_every_fusion<float>(DType::f32, true, 0x1p-9, 0);
}

TEST_CASE("linear layers in bf16") {
  if (!have_gpu()) return;
  // Factors are exact, sums are fp32, and activations have 8 significant bits: rounding them errs
  // by up to half a unit in the last bit.
  check_every_fusion<Bf16>(DType::bf16, false, 5e-6, 0x1p-8);
}

TEST_CASE("fp32 is never tf32, and bf16 sums are fp32, the bias added to them") {
  if (!have_gpu()) return;
  const GPU gpu;
  LinearDesc d;
  d.batch = d.in = d.out = 64;
  // Every product and some of the sums are exact in fp32, but x is not exact in tf32.
  const float x = 1.0F + 0x1p-12F;
  Input in = {std::vector<float>(64 * 64, x), std::vector<float>(64 * 64, 0x1p-6F),
              std::vector<float>(64, 0x1p-3F), std::vector<float>(64 * 64, x)};
  const Output got = run<float>(gpu, d, in);
  for (const float y : got.y) CHECK(y == x + 0x1p-3F);
  for (const float dx : got.dx) CHECK(dx == x);
  for (const float dbias : got.dbias) CHECK(dbias == 64 * x);

  // The sum lies halfway between two bf16 numbers, and the bias pushes the result up, unless the
  // sum was already rounded to bf16.
  d.type = DType::bf16;
  in = {std::vector<float>(64 * 64, 1.0F), std::vector<float>(64 * 64, 0x1p-6F),
        std::vector<float>(64, 0x1p-20F), std::vector<float>(64 * 64, 1.0F)};
  for (std::size_t row = 0; row < 64; ++row) in.x[row * 64 + row] = 1.25F;
  const Output rounded = run<Bf16>(gpu, d, in);
  for (const float y : rounded.y) CHECK(y == 1.0F + 0x1p-7F);
  const std::string implementation = make_cuda_op(gpu.context(), d)->implementation();
  INFO(implementation);
  CHECK(implementation.find("apart") == std::string::npos);
}

TEST_CASE("gradients in front of a ReLU, with and without their sums, in every order of blocks") {
  if (!have_gpu()) return;
  constexpr std::int64_t kRows = 5000, kColumns = 6;
  std::vector<float> y = random_values(kRows * kColumns, 1);
  const std::vector<float> dy = random_values(kRows * kColumns, 2);
  y[0] = 0.0F;
  y[1] = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> want = dy;
  std::vector<double> sums(kColumns);
  for (std::size_t i = 0; i < y.size(); ++i) {
    if (y[i] <= 0) want[i] = 0;
    sums[i % kColumns] += static_cast<double>(want[i]);
  }
  const GPU gpu;
  const CudaContext& context = gpu.context();
  const std::size_t bytes = column_sums_scratch(context, kRows, kColumns);
  CHECK(bytes > 0);  // Several blocks share a column.
  std::vector<float> first;
  in_every_order([&] {
    const GpuArray<float> outputs(gpu, y), out(gpu, std::vector<float>(kColumns, 0.0F)),
        scratch(gpu, std::vector<float>(bytes / sizeof(float)));
    for (const bool summed : {true, false}) {
      const GpuArray<float> x(gpu, dy);
      relu_column_sums(context, address(x.get()), address(outputs.get()), DType::f32, kRows,
                       kColumns, summed ? address(out.get()) : DevPtr{}, GradWrite::overwrite,
                       address(scratch.get()));
      CHECK(x.values() == want);
    }
    const std::vector<float> got = out.values();
    check_close("sums", got, sums);
    if (first.empty()) first = got;
    CHECK(got == first);
  });
}

/// Returns the algorithm named by implementation(): "... forward NAME, weights NAME...".
std::string algorithm_of(const std::string& implementation, const std::string& product) {
  const std::size_t at = implementation.find(product + " ");
  REQUIRE(at != std::string::npos);
  const std::size_t begin = at + product.size() + 1;
  return implementation.substr(begin, implementation.find_first_of(", ", begin) - begin);
}

nlohmann::json parsed(const std::string& file) {
  std::ifstream in(file);
  return nlohmann::json::parse(in);
}

TEST_CASE("algorithms are timed once a shape where a cache is given, and never in exact mode") {
  if (!have_gpu()) return;
  const TempDir dir;
  LinearDesc d;
  d.batch = d.in = 64;
  d.out = 32;
  std::string first;
  {
    const GPU gpu;
    first = make_cuda_op(gpu.context(), d)->implementation();
  }
  BackendOptions options;
  options.plan_cache = dir.file("plans.json");
  const auto implementation = [&] {
    return make_cuda_op(GPU(options).context(), d)->implementation();
  };
  const std::string chosen = implementation();
  CHECK(implementation() == chosen);
  auto cache = parsed(options.plan_cache);
  REQUIRE(cache["machines"].size() == 1);
  CHECK(cache["machines"].begin().key().find(" cuBLASLt ") != std::string::npos);
  auto& plans = cache["machines"].front();
  const std::string key = "product:64x64x32:nt:fp32>fp32:e4";
  REQUIRE(plans.contains(key));
  CHECK(plans.size() == 3);
  CHECK(plans[key] == algorithm_of(chosen, "forward"));
  // An algorithm in the file is used as long as the heuristics offer it; otherwise a new choice is
  // made.
  const std::string weights = algorithm_of(chosen, "weights");
  for (auto& [problem, name] : plans.items()) {
    if (problem == key) name = algorithm_of(first, "forward");
  }
  options.plan_cache = dir.file("of the rule.json");
  std::ofstream(options.plan_cache) << cache.dump();
  CHECK(algorithm_of(implementation(), "forward") == algorithm_of(first, "forward"));
  CHECK(algorithm_of(implementation(), "weights") == weights);
  plans[key] = "cublaslt:1000000-0-0-0-0-0-0-0-0";
  options.plan_cache = dir.file("unknown.json");
  std::ofstream(options.plan_cache) << cache.dump();
  CHECK(algorithm_of(implementation(), "forward").find("cublaslt:1000000") == std::string::npos);
  CHECK(parsed(options.plan_cache)["machines"].front()[key] != plans[key]);
  // Exact mode uses the rule's choice, and neither reads nor writes the file.
  options.exact = true;
  options.plan_cache = dir.file("exact.json");
  CHECK(implementation() == first);
  CHECK(!std::filesystem::exists(options.plan_cache));
}

#if __has_include("emulation/control.h")
TEST_CASE("every algorithm that can be timed gives the right result, by its name in the cache") {
  const TempDir dir;
  BackendOptions options;
  options.plan_cache = dir.file("plans.json");
  LinearDesc d;
  d.batch = d.in = 64;
  d.out = 32;
  make_cuda_op(GPU(options).context(), d);
  auto cache = parsed(options.plan_cache);
  for (const char* name :
       {"cublaslt:1-0-2-2-0-0-0-0-0", "cublaslt:2-0-0-0-0-0-0-0-0", "cublaslt:3-0-0-0-0-0-0-0-0"}) {
    INFO(name);
    for (auto& [problem, plan] : cache["machines"].front().items()) plan = name;
    options.plan_cache = dir.file(name);
    std::ofstream(options.plan_cache) << cache.dump();
    const GPU gpu(options);
    const std::string implementation = make_cuda_op(gpu.context(), d)->implementation();
    for (const char* product : {"forward", "weights", "data"}) {
      CHECK(algorithm_of(implementation, product) == name);
    }
    check_linear<float>(gpu, d, 5e-6, 0);
  }
}

TEST_CASE("NaN goes through ReLU where our own kernels apply it, and back") {
  const GPU gpu;
  LinearDesc d;
  d.batch = 2;
  d.in = d.out = 1;
  d.relu = true;
  d.type = DType::bf16;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  emulation::fail("cublasLtMatmulAlgoGetHeuristic:1:cudaErrorNotSupported");
  const Output got = run<Bf16>(gpu, d, {{nan, 1.0F}, {-1.0F}, {0.0F}, {3.0F, 5.0F}});
  CHECK(std::isnan(got.y[0]));
  CHECK(got.y[1] == 0.0F);
  CHECK(got.dbias[0] == 3.0F);
  emulation::clear_failures();
}

TEST_CASE("where cuBLASLt has no product with a bias or ReLU in it, our own kernel adds them") {
  const GPU gpu;
  for (const bool bias : {true, false}) {
    for (const bool relu : {true, false}) {
      LinearDesc d;
      d.batch = 5;
      d.in = 7;
      d.out = 3;
      d.bias = bias;
      d.relu = relu;
      const std::string failure = "cublasLtMatmulAlgoGetHeuristic:1:cudaErrorNotSupported";
      emulation::fail(failure);
      if (!bias && !relu) {
        CHECK_THROWS_AS(make_cuda_op(gpu.context(), d), Error);
        continue;
      }
      const std::string implementation = make_cuda_op(gpu.context(), d)->implementation();
      INFO(implementation);
      CHECK(implementation.find("apart") != std::string::npos);
      CHECK(implementation.find("cublasLtMatmulAlgoGetHeuristic failed") != std::string::npos);
      emulation::fail(failure);
      check_linear<float>(gpu, d, 5e-6, 0);
      d.type = DType::bf16;
      emulation::fail(failure);
      check_linear<Bf16>(gpu, d, 5e-6, 0x1p-8);
    }
  }
  emulation::clear_failures();
}
#endif

}  // namespace
}  // namespace dpt::testing
