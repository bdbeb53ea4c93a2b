// dpt's own convolution kernels, pass by pass, against the double-precision reference.
#include <doctest/doctest.h>

#include <optional>

#include "kernels/common/bf16.h"
#include "kernels/cuda/conv/conv_plan.h"
#include "kernels/cuda/conv/implicit_gemm.h"
#include "kernels/cuda/conv2d.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/cases.h"
#include "tests/kernels/cuda/gpu.h"
#include "tests/support/backends.h"
#include "tests/support/close.h"
#include "tests/support/op_runner.h"

namespace dpt::testing {
namespace {

enum class Arithmetic : std::uint8_t { f32, tf32, bf16 };
constexpr Arithmetic kEvery[] = {Arithmetic::f32, Arithmetic::tf32, Arithmetic::bf16};

ConvProblem problem_of(Conv2dDesc d, Pass pass, Arithmetic arithmetic) {
  d.type = arithmetic == Arithmetic::bf16 ? DType::bf16 : DType::f32;
  d.tf32 = arithmetic == Arithmetic::tf32;
  return conv_problem(d, pass);
}

/// Rounds a number as a kernel rounds its factors. The reference gets rounded factors, so the
/// tolerances need not cover this rounding (up to 2^-11 of each factor in tf32, 2^-8 in bf16). The
/// tests then also prove that the rounding is correct: to nearest, with ties away from zero in
/// tf32.
double factor(float value, Arithmetic arithmetic) {
  if (arithmetic == Arithmetic::bf16) return static_cast<double>(to_float(to_bf16(value)));
  if (arithmetic == Arithmetic::f32) return static_cast<double>(value);
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  return static_cast<double>(__builtin_bit_cast(float, (bits + 0x1000U) & ~0x1FFFU));
}
std::vector<double> factors(const std::vector<float>& values, Arithmetic arithmetic) {
  std::vector<double> result;
  for (const float value : values) result.push_back(factor(value, arithmetic));
  return result;
}

/// Returns the number of products that each result of a problem adds up.
double products_of(const ConvProblem& p) {
  const std::int64_t taps = p.kernel.h * p.kernel.w;
  const std::int64_t count = p.pass == Pass::forward         ? taps * (p.in.c / p.groups)
                             : p.pass == Pass::backward_data ? taps * (p.out.c / p.groups)
                                                             : p.batch * p.out.h * p.out.w;
  return static_cast<double>(count);
}

/// Returns the tolerance relative to the largest result: products are exact and sums are fp32.
/// Tensor cores align the products of one instruction (at least 8 of each sum) and the running sum
/// to one exponent and truncate, which loses about 2^-23 of the largest in each instruction.
double tolerance(const ConvProblem& p) {
  return 5e-6 + (p.tf32 || p.type == DType::bf16 ? products_of(p) / 8 * 0x1p-23 : 0);
}
/// Returns the tolerance for activations. In bf16 they are also rounded, by up to half a unit in
/// the last of their 8 bits. This is 2^-8 of a number just above a power of two.
double activation_tolerance(const ConvProblem& p) {
  return tolerance(p) + (p.type == DType::bf16 ? 0x1p-8 : 0);
}

/// Runs plans on vectors of floats, converted to the problem's type on the GPU.
struct Arrays {
  template <class T>
  static std::vector<float> run_as(const GPU& gpu, ConvPlan& plan, const ConvProblem& p,
                                   const std::vector<float>& x, const std::vector<float>& y,
                                   const std::vector<float>& weight,
                                   const std::vector<float>& bias) {
    const GpuArray<T> x_on(gpu, as<T>(x)), y_on(gpu, as<T>(y)), weight_on(gpu, as<T>(weight));
    const GpuArray<float> bias_on(gpu, bias);
    ConvArgs args;
    args.x = x_on.get();
    args.y = y_on.get();
    args.weight = weight_on.get();
    args.bias = bias_on.get();
    plan.run(args);
    std::vector<float> result;
    for (const T value : (p.pass == Pass::forward ? y_on : x_on).values()) {
      result.push_back(to_float(value));
    }
    return result;
  }
};

std::vector<float> nan(std::size_t count) {
  return std::vector<float>(count, std::numeric_limits<float>::quiet_NaN());
}

/// Returns dpt's own plan that is used without timing.
std::unique_ptr<ConvPlan> preferred(const CudaContext& context, const ConvProblem& problem) {
  auto plans = make_own_plans(context, problem);
  return plans.empty() ? nullptr : std::move(plans.front());
}

using MakePlan = std::unique_ptr<ConvPlan> (*)(const CudaContext&, const ConvProblem&);

/// Returns the output of forward or backward data.
std::vector<float> run(const GPU& gpu, const ConvProblem& p, const std::vector<float>& x,
                       const std::vector<float>& y, const std::vector<float>& weight,
                       const std::vector<float>& bias, MakePlan make = make_implicit_gemm) {
  const auto plan = make(gpu.context(), p);
  REQUIRE(plan);
  return p.type == DType::bf16 ? Arrays::run_as<Bf16>(gpu, *plan, p, x, y, weight, bias)
                               : Arrays::run_as<float>(gpu, *plan, p, x, y, weight, bias);
}

struct WeightGradients {
  std::vector<float> weight, bias;
};

/// Adds to the gradients in `start`, or overwrites memory if `start` is empty.
template <class T>
WeightGradients run_weights(const GPU& gpu, const ConvProblem& p, const std::vector<float>& x,
                            const std::vector<float>& dy, std::size_t weights,
                            const WeightGradients& start = {}, MakePlan make = make_implicit_gemm) {
  const auto plan = make(gpu.context(), p);
  REQUIRE(plan);
  CHECK(plan->gives_dbias() == p.bias);
  const bool add = !start.weight.empty();
  const auto channels = static_cast<std::size_t>(p.out.c);
  const GpuArray<T> x_on(gpu, as<T>(x)), dy_on(gpu, as<T>(dy));
  const GpuArray<float> dweight(gpu, add ? start.weight : nan(weights));
  const GpuArray<float> dbias(gpu, add ? start.bias : nan(channels));
  ConvArgs args;
  args.x = x_on.get();
  args.y = dy_on.get();
  args.dweight = dweight.get();
  args.dbias = dbias.get();
  args.write = add ? GradWrite::add : GradWrite::overwrite;
  plan->run(args);
  return {dweight.values(), dbias.values()};
}

/// Input numbers for a description, and the reference's results.
struct Numbers {
  Numbers(const Conv2dDesc& d, Arithmetic arithmetic)
      : x(random_values(d.batch * d.in.elements(), 1)),
        weight(random_values(weight_count(d), 2)),
        bias(random_values(d.conv_out.c, 3)),
        dy(random_values(d.batch * d.out.elements(), 4)) {
    Conv2dDesc plain = d;
    plain.relu = d.relu && d.pool;  // Without a pool, ReLU's backward is a separate pass.
    plain.bias = true;
    y = reference::conv2d(d, factors(x, arithmetic), factors(weight, arithmetic), to_double(bias));
    gradients =
        reference::conv2d_backward(plain, factors(x, arithmetic), factors(weight, arithmetic),
                                   to_double(bias), factors(dy, arithmetic));
  }
  std::vector<float> x, weight, bias, dy;
  std::vector<double> y;
  reference::Gradients gradients;
};

void check_case(const GPU& gpu, const Conv2dDesc& d, Arithmetic arithmetic) {
  const Numbers n(d, arithmetic);
  ConvProblem p = problem_of(d, Pass::forward, arithmetic);
  INFO(p.key());
  check_close("y", run(gpu, p, n.x, nan(n.y.size()), n.weight, n.bias), n.y,
              activation_tolerance(p));
  p = problem_of(d, Pass::backward_data, arithmetic);
  check_close("dx", run(gpu, p, nan(n.x.size()), n.dy, n.weight, {0}), n.gradients.x,
              activation_tolerance(p));
  // Small images have separate kernels.
  if (make_image_conv(gpu.context(), p)) {
    check_close("dx", run(gpu, p, nan(n.x.size()), n.dy, n.weight, {0}, make_image_conv),
                n.gradients.x, activation_tolerance(p));
  }
  p = problem_of(d, Pass::forward, arithmetic);
  if (make_image_conv(gpu.context(), p)) {
    check_close("y", run(gpu, p, n.x, nan(n.y.size()), n.weight, n.bias, make_image_conv), n.y,
                activation_tolerance(p));
  }
  p = problem_of(d, Pass::backward_weights, arithmetic);
  const auto weights = p.type == DType::bf16 ? run_weights<Bf16> : run_weights<float>;
  for (const MakePlan make : {make_implicit_gemm, make_image_conv}) {
    if (!make(gpu.context(), p)) continue;
    const WeightGradients first = weights(gpu, p, n.x, n.dy, n.weight.size(), {}, make);
    check_close("dweight", first.weight, n.gradients.weight, tolerance(p));
    if (d.bias) check_close("dbias", first.bias, n.gradients.bias, tolerance(p));
    const WeightGradients both = weights(gpu, p, n.x, n.dy, n.weight.size(), first, make);
    std::vector<double> weight_sum = n.gradients.weight, bias_sum = n.gradients.bias;
    for (std::size_t i = 0; i < weight_sum.size(); ++i) weight_sum[i] += first.weight[i];
    for (std::size_t i = 0; i < bias_sum.size(); ++i) bias_sum[i] += first.bias[i];
    check_close("added dweight", both.weight, weight_sum, tolerance(p));
    if (d.bias) check_close("added dbias", both.bias, bias_sum, tolerance(p));
  }
}

TEST_CASE("own convolutions agree with the reference in every arithmetic") {
  if (!have_gpu()) return;
  const GPU gpu;
  std::vector<Conv2dDesc> cases = conv_cases();
  // The phases of backward data: strides that do and do not divide the dilation, kernels smaller
  // than the stride, phases without a tap, sizes that the stride does not divide.
  cases.push_back(conv_case(2, {11, 9, 8}, 6, {3, 3}, {2, 2}, {2, 1}, {2, 2}));
  cases.push_back(conv_case(1, {13, 16, 4}, 6, {3, 4}, {3, 2}, {1, 2}, {2, 3}));
  cases.push_back(conv_case(1, {12, 11, 6}, 5, {2, 5}, {4, 3}, {0, 3}, {2, 1}));
  cases.push_back(conv_case(2, {9, 9, 4}, 8, {4, 4}, {2, 2}, {1, 1}, {1, 1}, 2));
  // Larger than one tile in each direction, and with sums that are split.
  cases.push_back(conv_case(3, {12, 12, 12}, 72, {3, 3}, {1, 1}, {1, 1}));
  for (Conv2dDesc d : cases) {
    for (const Arithmetic arithmetic : kEvery) {
      d.bias = d.relu = true;
      check_case(gpu, d, arithmetic);
      if (is_emulated("cuda:0") && arithmetic != Arithmetic::f32) continue;
      d.bias = d.relu = false;
      check_case(gpu, d, arithmetic);
    }
  }
}

TEST_CASE("own convolutions give the same bits in whatever order blocks and threads run") {
  if (!have_gpu()) return;
  const GPU gpu;
  for (const Conv2dDesc& d : {conv_case(2, {28, 28, 1}, 20, {3, 3}),
                              conv_case(3, {12, 12, 12}, 40, {3, 3}, {1, 1}, {1, 1}),
                              conv_case(2, {9, 9, 16}, 8, {3, 3}, {2, 2}, {1, 1})}) {
    for (const Arithmetic arithmetic : kEvery) {
      const Numbers n(d, arithmetic);
      const ConvProblem forward = problem_of(d, Pass::forward, arithmetic);
      const ConvProblem data = problem_of(d, Pass::backward_data, arithmetic);
      const ConvProblem weights = problem_of(d, Pass::backward_weights, arithmetic);
      INFO(forward.key());
      std::vector<float> y, dx;
      WeightGradients gradients;
      in_every_order([&] {
        const auto y_now = run(gpu, forward, n.x, nan(n.y.size()), n.weight, n.bias);
        const auto dx_now = run(gpu, data, nan(n.x.size()), n.dy, n.weight, {0});
        const auto gradients_now =
            arithmetic == Arithmetic::bf16
                ? run_weights<Bf16>(gpu, weights, n.x, n.dy, n.weight.size())
                : run_weights<float>(gpu, weights, n.x, n.dy, n.weight.size());
        if (!y.empty()) {
          CHECK(same_bits(y_now, y));
          CHECK(same_bits(dx_now, dx));
          CHECK(same_bits(gradients_now.weight, gradients.weight));
          CHECK(same_bits(gradients_now.bias, gradients.bias));
        }
        y = y_now;
        dx = dx_now;
        gradients = gradients_now;
      });
    }
  }
}

struct PooledResult {
  std::vector<float> y, dx, dweight, dbias;
};

/// Runs forward and backward of a convolution with fused pooling, with plans from `make`.
template <class T>
PooledResult run_pooled(const GPU& gpu, const Conv2dDesc& d, Arithmetic arithmetic,
                        const Numbers& n, MakePlan make) {
  const auto plan = [&](Pass pass) {
    ConvProblem p = problem_of(d, pass, arithmetic);
    p.pool = pool_inside(d);
    REQUIRE(p.pool);
    auto made = make(gpu.context(), p);
    REQUIRE(made);
    return made;
  };
  const auto outputs = static_cast<std::size_t>(d.batch * d.out.elements());
  const GpuArray<T> x(gpu, as<T>(n.x)), weight(gpu, as<T>(n.weight)), dy(gpu, as<T>(n.dy)),
      y(gpu, as<T>(nan(outputs))), dx(gpu, as<T>(nan(n.x.size())));
  const GpuArray<float> bias(gpu, n.bias), dweight(gpu, nan(n.weight.size())),
      dbias(gpu, nan(n.bias.size()));
  const GpuArray<std::uint8_t> open(gpu, std::vector<std::uint8_t>(outputs, 0xFF));
  ConvArgs args;
  args.weight = weight.get();
  args.bias = bias.get();
  args.open = open.get();
  args.dweight = dweight.get();
  args.dbias = dbias.get();
  args.x = x.get();
  args.y = y.get();
  plan(Pass::forward)->run(args);
  args.y = dy.get();
  plan(Pass::backward_weights)->run(args);
  args.x = dx.get();
  plan(Pass::backward_data)->run(args);
  return {floats(y.values()), floats(dx.values()), dweight.values(), dbias.values()};
}

PooledResult run_pooled(const GPU& gpu, const Conv2dDesc& d, Arithmetic arithmetic,
                        const Numbers& n, MakePlan make) {
  const auto run_as = arithmetic == Arithmetic::bf16 ? run_pooled<Bf16> : run_pooled<float>;
  return run_as(gpu, d, arithmetic, n, make);
}

/// Returns pooled cases: one window more than a tile, odd and even numbers of channels, rows and
/// columns that belong to no window, strides and dilation.
std::vector<Conv2dDesc> pooled_cases() {
  return {conv_case(2, {28, 28, 1}, 20, {3, 3}),
          conv_case(3, {13, 13, 20}, 50, {5, 5}),
          conv_case(2, {9, 11, 3}, 5, {3, 2}),
          conv_case(3, {12, 12, 12}, 72, {3, 3}, {1, 1}, {1, 1}),
          conv_case(2, {17, 15, 8}, 6, {3, 3}, {2, 2}, {2, 1}, {2, 2}),
          conv_case(1, {14, 9, 16}, 33, {2, 5}, {3, 1}, {0, 3})};
}

TEST_CASE("pooling inside a convolution agrees with the reference in every arithmetic") {
  if (!have_gpu()) return;
  const GPU gpu;
  for (const Conv2dDesc& plain : pooled_cases()) {
    for (const PoolKind kind : {PoolKind::max, PoolKind::average}) {
      for (const Arithmetic arithmetic : kEvery) {
        Conv2dDesc d = with_pool(plain, kind, {2, 2}, {2, 2});
        for (const bool relu : {true, false}) {
          // An emulated GPU runs every pair of choices, but not every triple.
          const bool swapped = arithmetic == Arithmetic::tf32;
          if (is_emulated("cuda:0") && relu != ((kind == PoolKind::max) != swapped)) continue;
          d.relu = relu;
          if (kind == PoolKind::average && !relu) d.pool->divisor_override = 3;
          const Numbers n(d, arithmetic);
          const auto problem = [&](Pass pass) { return problem_of(d, pass, arithmetic); };
          INFO(text(d), " ", problem(Pass::forward).key());
          // The factor 1/3 is rounded to the type of the gradients.
          const double scaled = d.pool->divisor_override == 0    ? 0
                                : arithmetic == Arithmetic::bf16 ? 0x1p-8
                                : arithmetic == Arithmetic::tf32 ? 0x1p-10
                                                                 : 0;
          for (const MakePlan make : {make_implicit_gemm, preferred}) {
            const PooledResult got = run_pooled(gpu, d, arithmetic, n, make);
            check_close("y", got.y, n.y, activation_tolerance(problem(Pass::forward)));
            check_close("dx", got.dx, n.gradients.x,
                        activation_tolerance(problem(Pass::backward_data)) + scaled);
            check_close("dweight", got.dweight, n.gradients.weight,
                        tolerance(problem(Pass::backward_weights)) + scaled);
            check_close("dbias", got.dbias, n.gradients.bias,
                        tolerance(problem(Pass::backward_weights)) + scaled);
          }
        }
      }
    }
  }
}

TEST_CASE("pooling inside a convolution gives the same bits in whatever order threads run") {
  if (!have_gpu()) return;
  const GPU gpu;
  for (const PoolKind kind : {PoolKind::max, PoolKind::average}) {
    for (const Arithmetic arithmetic : kEvery) {
      Conv2dDesc d = with_pool(conv_case(3, {12, 13, 12}, 40, {3, 3}), kind, {2, 2}, {2, 2});
      d.relu = true;
      const Numbers n(d, arithmetic);
      for (const MakePlan make : {make_implicit_gemm, preferred}) {
        std::optional<PooledResult> before;
        in_every_order([&] {
          const PooledResult now = run_pooled(gpu, d, arithmetic, n, make);
          if (before) {
            CHECK(same_bits(now.y, before->y));
            CHECK(same_bits(now.dx, before->dx));
            CHECK(same_bits(now.dweight, before->dweight));
            CHECK(same_bits(now.dbias, before->dbias));
          }
          before = now;
        });
      }
    }
  }
}

TEST_CASE("pooling inside a convolution: ties, zeros and NaN as in pooling by itself") {
  if (!have_gpu()) return;
  const GPU gpu;
  // A 1x1 convolution that copies its input: windows (1,1,1,1), (-1,-1,-1,-1), (NaN,2,NaN,3),
  // (0,0,0,0).
  const float q = std::numeric_limits<float>::quiet_NaN();
  Conv2dDesc d = with_pool(conv_case(1, {2, 8, 1}, 1, {1, 1}), PoolKind::max, {2, 2}, {2, 2});
  d.relu = true;
  Numbers n(d, Arithmetic::tf32);
  n.x = {1, 1, -1, -1, q, 2, 0, 0, 1, 1, -1, -1, q, 3, 0, 0};
  n.weight = {1};
  n.bias = {0};
  n.dy = {10, 20, 30, 40};
  const std::vector<float> dx = {10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 30, 0, 0, 0};
  for (const MakePlan make : {make_implicit_gemm, preferred}) {
    for (const Arithmetic arithmetic : {Arithmetic::f32, Arithmetic::tf32}) {
      const PooledResult got = run_pooled(gpu, d, arithmetic, n, make);
      CHECK(got.y[0] == 1);
      CHECK(got.y[1] == 0);
      CHECK(std::isnan(got.y[2]));
      CHECK(got.y[3] == 0);
      CHECK(got.dx == dx);
    }
  }
}

TEST_CASE("small images have kernels of their own, where the GPU has the shared memory") {
  if (!have_gpu()) return;
  const GPU gpu;
  CudaContext small = gpu.context();
  small.shared_bytes_per_block = 1024;
  const Conv2dDesc first = conv_case(2, {28, 28, 1}, 20, {3, 3});
  const Conv2dDesc second = conv_case(2, {13, 13, 20}, 50, {5, 5});
  // bf16 pixels that do not fill whole words are processed as tf32.
  const Conv2dDesc odd = conv_case(2, {9, 11, 3}, 5, {3, 2});
  for (const ConvProblem& p : {problem_of(first, Pass::forward, Arithmetic::tf32),
                               problem_of(first, Pass::forward, Arithmetic::bf16),
                               problem_of(odd, Pass::forward, Arithmetic::bf16),
                               problem_of(odd, Pass::backward_data, Arithmetic::bf16),
                               problem_of(second, Pass::forward, Arithmetic::tf32),
                               problem_of(second, Pass::forward, Arithmetic::bf16),
                               problem_of(second, Pass::backward_data, Arithmetic::tf32),
                               problem_of(second, Pass::backward_data, Arithmetic::bf16),
                               problem_of(second, Pass::backward_weights, Arithmetic::tf32),
                               problem_of(second, Pass::backward_weights, Arithmetic::bf16)}) {
    INFO(p.key());
    CHECK(make_image_conv(gpu.context(), p));
    CHECK(!make_image_conv(small, p));
  }
  CHECK(
      make_image_conv(gpu.context(), problem_of(first, Pass::forward, Arithmetic::bf16))->name() ==
      "image:bf16-as-tf32");
  for (const ConvProblem& p : {problem_of(second, Pass::forward, Arithmetic::f32),
                               problem_of(first, Pass::backward_data, Arithmetic::tf32)}) {
    INFO(p.key());
    CHECK(!make_image_conv(gpu.context(), p));
  }
}

TEST_CASE(
    "small images: a plan with little shared memory leaves a larger one of its kernel alone") {
  if (!have_gpu()) return;
  const GPU gpu;
  const Conv2dDesc large = conv_case(2, {13, 13, 20}, 50, {5, 5});
  const Numbers n(large, Arithmetic::tf32);
  for (const Pass pass : {Pass::forward, Pass::backward_weights}) {
    const ConvProblem p = problem_of(large, pass, Arithmetic::tf32);
    const MakePlan make = [](const CudaContext& context, const ConvProblem& problem) {
      auto plan = make_image_conv(context, problem);
      const Conv2dDesc small = conv_case(2, {6, 6, 4}, 8, {3, 3});
      REQUIRE(make_image_conv(context, problem_of(small, problem.pass, Arithmetic::tf32)));
      return plan;
    };
    if (pass == Pass::forward) {
      check_close("y", run(gpu, p, n.x, nan(n.y.size()), n.weight, n.bias, make), n.y,
                  tolerance(p));
    } else {
      check_close("dweight",
                  run_weights<float>(gpu, p, n.x, n.dy, n.weight.size(), {}, make).weight,
                  n.gradients.weight, tolerance(p));
    }
  }
}

/// Checks that a block of the GPU processes several images, one after the other.
TEST_CASE("small images: more of them than the GPU has multiprocessors") {
  if (!have_gpu()) return;
  const GPU gpu;
  const std::int64_t images = 9 * gpu.context().multiprocessors + 1;
  for (const Arithmetic arithmetic : {Arithmetic::tf32, Arithmetic::bf16}) {
    for (const PoolKind kind : {PoolKind::max, PoolKind::average}) {
      Conv2dDesc d = with_pool(conv_case(images, {7, 6, 4}, 10, {3, 3}), kind, {2, 2}, {2, 2});
      d.relu = true;
      const Numbers n(d, arithmetic);
      const PooledResult got = run_pooled(gpu, d, arithmetic, n, preferred);
      const auto problem = [&](Pass pass) { return problem_of(d, pass, arithmetic); };
      check_close("y", got.y, n.y, activation_tolerance(problem(Pass::forward)));
      check_close("dx", got.dx, n.gradients.x, activation_tolerance(problem(Pass::backward_data)));
      check_close("dweight", got.dweight, n.gradients.weight,
                  tolerance(problem(Pass::backward_weights)));
      check_close("dbias", got.dbias, n.gradients.bias, tolerance(problem(Pass::backward_weights)));
    }
  }
}

TEST_CASE("a NaN or an infinity goes through a convolution where it belongs") {
  if (!have_gpu()) return;
  const GPU gpu;
  Conv2dDesc d = conv_case(1, {4, 4, 4}, 2, {1, 1});
  d.bias = d.relu = true;
  for (const Arithmetic arithmetic : kEvery) {
    Numbers n(d, arithmetic);
    for (float& w : n.weight) w = 1;
    n.x[4] = std::numeric_limits<float>::quiet_NaN();
    n.x[8] = std::numeric_limits<float>::infinity();
    const ConvProblem p = problem_of(d, Pass::forward, arithmetic);
    for (const MakePlan make : {make_implicit_gemm, preferred}) {
      const auto y = run(gpu, p, n.x, nan(n.y.size()), n.weight, n.bias, make);
      CHECK(std::isfinite(y[0]));
      CHECK(std::isnan(y[2]));
      CHECK(std::isinf(y[4]));
      CHECK(std::isfinite(y[6]));
    }
  }
}

TEST_CASE("tensors too large for 32-bit indices are refused") {
  if (!have_gpu()) return;
  const GPU gpu;
  for (const Pass pass : {Pass::forward, Pass::backward_data, Pass::backward_weights}) {
    Conv2dDesc d = conv_case(1, {1 << 15, 1 << 15, 1}, 1, {1, 1});
    CHECK(make_implicit_gemm(gpu.context(), problem_of(d, pass, Arithmetic::f32)));
    d.batch = 2;
    CHECK(!make_implicit_gemm(gpu.context(), problem_of(d, pass, Arithmetic::f32)));
  }
}

TEST_CASE("division by multiplication is exact below 2^31") {
  const std::uint32_t top = 0x7FFFFFFF;
  for (const std::uint32_t d : {1U, 2U, 3U, 5U, 7U, 9U, 20U, 25U, 81U, 676U, 1000U, 65535U, 65536U,
                                65537U, 0x40000000U, 0x40000001U, top}) {
    const Divider by(d);
    for (const std::uint32_t n : {0U, 1U, d - 1, d, d + 1, top / d * d, top - 1, top}) {
      if (n > top) continue;
      CHECK(by.quotient(n) == n / d);
      if (n > 0) CHECK(by.quotient(n - 1) == (n - 1) / d);
    }
  }
}

}  // namespace
}  // namespace dpt::testing
