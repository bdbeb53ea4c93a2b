// Convolutions and linear layers in bf16 on the CPU. They need a processor with bf16 instructions;
// without these, the backend must refuse them.
#include <doctest/doctest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <limits>

#include "kernels/base/error.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/winograd_conv2d.h"
#include "kernels/devices.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/bf16_values.h"
#include "tests/kernels/cases.h"
#include "tests/kernels/cpu/own_conv2d_checks.h"
#include "tests/support/backends.h"
#include "tests/support/close.h"
#include "tests/support/op_runner.h"
#include "tests/support/skip.h"

namespace dpt::testing {
namespace {

constexpr const char* kRefusal =
    " in bf16 is not available: this processor ({}) has no bf16 instructions (AVX512-BF16 or AMX); "
    "use train.precision=fp32";

/// Returns true if this processor can run the tests; otherwise prints the reason.
bool have_bf16() {
  if (onednn::has_bf16()) return true;
  skip_test("this processor (" + onednn::instruction_set() + ") has neither AVX512-BF16 nor AMX");
  return false;
}

/// Returns true if this processor can run the kernels that are compiled for AVX512-BF16.
bool have_avx512_bf16() {
  if (CpuFeatures::detect().avx512_bf16) return true;
  skip_test("this processor has no AVX512-BF16");
  return false;
}

struct Input {
  std::vector<float> x, weight, bias, dy;
};

/// Returns the input of a convolution, made by `values`.
Input input_of(const Conv2dDesc& d,
               std::vector<float> (*values)(std::int64_t count, std::uint64_t seed)) {
  return {values(d.batch * d.in.elements(), 1), values(weight_count(d), 2),
          values(d.bias ? d.conv_out.c : 0, 3), values(d.batch * d.out.elements(), 4)};
}

struct Output {
  std::vector<float> y, dx, dweight, dbias, dweight_twice, dbias_twice;
};

/// Runs forward, backward, and a backward that adds. Memory that must not be needed starts as NaN.
Output run(Backend& backend, Op& op, const Input& in) {
  const float not_a_number = std::numeric_limits<float>::quiet_NaN();
  constexpr std::size_t kBehind = 16;
  const std::vector<float> nan(
      std::max(op.scratch_bytes(), op.saved_bytes()) / sizeof(float) + kBehind, not_a_number);
  const OnDevice<Bf16> x(backend, rounded(in.x)), weight(backend, rounded(in.weight));
  const OnDevice<Bf16> y(backend, std::vector<Bf16>(in.dy.size(), to_bf16(not_a_number)));
  const OnDevice<Bf16> dx(backend, std::vector<Bf16>(in.x.size(), to_bf16(not_a_number)));
  OnDevice<Bf16> dy(backend, rounded(in.dy));
  const OnDevice<float> bias(backend, in.bias), dweight(backend, in.weight),
      dbias(backend, in.bias), saved(backend, nan), scratch(backend, nan);
  OpArgs args;
  args.x = x.ptr();
  args.y = y.ptr();
  args.params[WeightAndBias::kWeight] = {{}, weight.ptr(), dweight.ptr()};
  args.params[WeightAndBias::kBias] = {bias.ptr(), {}, dbias.ptr()};
  args.dy = dy.ptr();
  args.dx = dx.ptr();
  args.saved = saved.ptr();
  args.scratch = scratch.ptr();
  op.forward(args);
  Output out;
  out.y = widened(y.get());
  op.backward(args);
  out.dx = widened(dx.get());
  out.dweight = dweight.get();
  out.dbias = dbias.get();
  dy.set(rounded(in.dy));
  args.write = GradWrite::add;
  op.backward(args);
  out.dweight_twice = dweight.get();
  out.dbias_twice = dbias.get();
  // The memory after the requested scratch does not belong to the operation.
  const std::vector<float> after = scratch.get();
  const std::size_t end = op.scratch_bytes() / sizeof(float);
  for (std::size_t i = end; i < end + kBehind; ++i) CHECK(std::isnan(after[i]));
  return out;
}

/// The expected results of `run` for a convolution that rounds every activation once. An
/// implementation that fuses the pool rounds only what the pool returns.
struct Expected {
  std::vector<double> y;
  reference::Gradients gradients;
};
Expected expect(const Conv2dDesc& d, const Input& in, bool fuses_pool = false) {
  Conv2dDesc plain = d;
  plain.relu = false;
  plain.pool.reset();
  const auto x = to_double(in.x), weight = to_double(in.weight), bias = to_double(in.bias);
  std::vector<double> z = reference::conv(d, x, weight, bias);
  if (!fuses_pool) z = rounded_to_bf16(z);
  if (d.relu) z = reference::relu(z);
  std::vector<double> dz = to_double(in.dy);
  Expected want{z, {}};
  if (d.pool) {
    want.y = rounded_to_bf16(reference::pool(*d.pool, z));
    dz = rounded_to_bf16(reference::pool_backward(*d.pool, z, dz));
  }
  if (d.relu) dz = reference::relu_backward(dz, z);
  want.gradients = reference::conv2d_backward(plain, x, weight, bias, dz);
  want.gradients.x = rounded_to_bf16(want.gradients.x);
  return want;
}

/// Maximum error of gradients by Winograd's filtering (root mean square, relative). Both operands
/// are rounded to 8 bits after their transform, which errs by up to 2^-7 / sqrt(12) (root mean
/// square), and the transform of the products amplifies the error by 5/3
/// (docs/internals/performance.md).
const double kWinogradError = 0x1p-7 / std::sqrt(12) * std::sqrt(2) * 5 / 3;

/// Returns the root mean square of the errors, relative to that of the expected values.
double relative_error(const std::vector<float>& got, const std::vector<double>& want) {
  double errors = 0, squares = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double error = static_cast<double>(got[i]) - want[i];
    errors += error * error;
    squares += want[i] * want[i];
  }
  return std::sqrt(errors / squares);
}

std::vector<double> twice(std::vector<double> values) {
  for (double& value : values) value *= 2;
  return values;
}

void check_exact_gradients(const Output& got, const Expected& want) {
  check_close("dx", got.dx, want.gradients.x, 0);
  check_close("dweight", got.dweight, want.gradients.weight, 0);
  check_close("dbias", got.dbias, want.gradients.bias, 0);
  check_close("dweight twice", got.dweight_twice, twice(want.gradients.weight), 0);
  check_close("dbias twice", got.dbias_twice, twice(want.gradients.bias), 0);
}

void check_exact(const Output& got, const Expected& want) {
  check_close("y", got.y, want.y, 0);
  check_exact_gradients(got, want);
}

/// Checks results of Winograd's filtering. y may be the neighbouring bf16 number, because factors
/// like 1/6 are not exact in fp32.
void check_winograd(const Output& got, const Expected& want) {
  check_neighbours("y", got.y, want.y);
  check_exact_gradients(got, want);
}

void check_bf16_conv(Conv2dDesc d) {
  const Input in = input_of(d, whole_values);
  const Conv2dDesc exact = d;
  d.type = DType::bf16;
  if (d.pool) d.pool->type = DType::bf16;
  for (const int threads : {1, 2}) {
    const auto backend = make_cpu_backend(threads);
    const auto op = backend->make(d);
    INFO(backend->info().name, ": ", text(d), " by ", op->implementation());
    const bool is_direct = op->implementation().starts_with("direct");
    const bool is_winograd = op->implementation().starts_with("winograd");
    const auto check = is_winograd ? check_winograd : check_exact;
    check(run(*backend, *op, in), expect(exact, in, is_direct && d.pool));
  }
}

TEST_CASE("convolutions in bf16 with every fusion, to the bit") {
  if (!have_bf16()) return;
  for (Conv2dDesc d : conv_cases()) {
    for (const bool bias : {true, false}) {
      for (const bool relu : {true, false}) {
        d.bias = bias;
        d.relu = relu;
        check_bf16_conv(d);
        if (bias != relu || d.conv_out.h < 2 || d.conv_out.w < 2) continue;
        check_bf16_conv(with_pool(d, PoolKind::max, {2, 2}, {2, 2}));
        check_bf16_conv(with_pool(d, PoolKind::average, {2, 2}, {2, 2}));
        if (relu) check_bf16_conv(with_pool(d, PoolKind::max, {2, 2}, {1, 1}, {1, 1}));
      }
    }
  }
}

TEST_CASE("convolutions in bf16 of random shapes, to the bit") {
  if (!have_bf16()) return;
  for (std::uint64_t seed = 0; seed < 120; ++seed) check_bf16_conv(random_direct_conv(seed));
  for (const Conv2dDesc& d : long_direct_convs()) check_bf16_conv(d);
}

TEST_CASE("convolutions in bf16 by Winograd's filtering, gradients to the bit") {
  if (!have_avx512_bf16()) return;
  const CpuFeatures features = CpuFeatures::detect();
  const auto backend = make_cpu_backend(1);
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    Conv2dDesc d = random_winograd_conv(seed);
    // No sum is 0, where a small error would decide whether ReLU passes the gradient.
    d.bias = d.bias || d.relu;
    Input in = input_of(d, whole_values);
    for (float& each : in.bias) each += 0.5F;
    const Expected want = expect(d, in);
    d.type = DType::bf16;
    for (const int threads : {1, 3}) {
      const auto op = make_winograd_conv2d(d, CpuTarget{threads, features}, Prefer::ours);
      INFO(text(d), " by ", op->implementation());
      check_winograd(run(*backend, *op, in), want);
    }
  }
}

TEST_CASE("gradients in bf16 by Winograd's filtering err by the rounding of their operands") {
  if (!have_avx512_bf16()) return;
  const CpuFeatures features = CpuFeatures::detect();
  const auto backend = make_cpu_backend(1);
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    Conv2dDesc d = random_winograd_conv(seed);
    d.relu = false;
    const Input in = input_of(d, [](std::int64_t count, std::uint64_t stream) {
      return widened(rounded(random_values(count, stream)));
    });
    const Expected want = expect(d, in);
    d.type = DType::bf16;
    const auto op = make_winograd_conv2d(d, CpuTarget{1, features}, Prefer::ours);
    const Output got = run(*backend, *op, in);
    INFO(text(d));
    CHECK(relative_error(got.dx, want.gradients.x) < kWinogradError);
    CHECK(relative_error(got.dweight, want.gradients.weight) < kWinogradError);
  }
}

/// Returns a random description with groups and dilation, on images so small that some taps of the
/// kernel may see only padding.
Conv2dDesc random_library_conv(std::uint64_t seed) {
  Draws pick(seed, 1);
  const bool is_point = pick(0, 3) == 0;
  const Size2 kernel = is_point ? Size2{1, 1} : Size2{pick(1, 5), pick(1, 5)};
  const Size2 stride{pick(1, 4), pick(1, 4)};
  const Size2 dilation{pick(0, 2) > 0 ? 1 : pick(2, 4), pick(0, 2) > 0 ? 1 : pick(2, 4)};
  const Size2 padding{pick(0, 3), pick(0, 3)};
  const auto side = [&](std::int64_t k, std::int64_t dilate, std::int64_t pad) {
    const std::int64_t least = (k - 1) * dilate + 1 - 2 * pad;
    return std::max<std::int64_t>(least, 1) + (pick(0, 1) > 0 ? pick(0, 4) : pick(0, 40));
  };
  const std::int64_t kind = pick(0, 3), groups = kind == 0 ? 1 : pick(1, 24);
  const std::int64_t in = kind == 1 ? groups : groups * pick(1, groups == 1 ? 40 : 6);
  const std::int64_t out = kind == 1 ? groups : groups * pick(1, groups == 1 ? 40 : 6);
  const std::int64_t height = side(kernel.h, dilation.h, padding.h);
  Conv2dDesc d = conv_case(pick(1, 3), {height, side(kernel.w, dilation.w, padding.w), in}, out,
                           kernel, stride, padding, dilation, groups);
  d.bias = pick(0, 1) > 0;
  return d;
}

/// Checks the convolution that the library computes where dpt has no kernel.
void check_library_conv(Conv2dDesc d) {
  const Input in = input_of(d, whole_values);
  const Expected want = expect(d, in);
  d.type = DType::bf16;
  for (const int threads : {1, 2}) {
    const auto backend = make_cpu_backend(threads);
    const auto op = make_cpu_op(d, CpuTarget{threads, {}});
    INFO(backend->info().name, ": ", text(d), " by ", op->implementation());
    check_exact(run(*backend, *op, in), want);
  }
}

TEST_CASE("convolutions in bf16 that the library computes, to the bit") {
  if (!have_bf16()) return;
  for (std::uint64_t seed = 0; seed < 240; ++seed) check_library_conv(random_library_conv(seed));
  // Odd numbers of output channels. One of oneDNN's kernels loses a part of them.
  for (const Conv2dDesc& d :
       {conv_case(2, {6, 5, 8}, 3, {1, 1}), conv_case(2, {10, 3, 37}, 53, {1, 1}),
        conv_case(2, {3, 10, 40}, 57, {1, 1})}) {
    check_library_conv(d);
  }
}

TEST_CASE("linear layers in bf16 with every fusion, to the bit") {
  if (!have_bf16()) return;
  const std::int64_t shapes[][3] = {
      {1, 800, 128}, {7, 128, 10}, {4, 1, 1}, {3, 5, 7}, {256, 33, 65}};
  for (const auto& [batch, in_size, out_size] : shapes) {
    for (const bool bias : {true, false}) {
      for (const bool relu : {true, false}) {
        LinearDesc d;
        d.batch = batch;
        d.in = in_size;
        d.out = out_size;
        d.bias = bias;
        d.relu = relu;
        const Input in = {whole_values(batch * in_size, 1), whole_values(in_size * out_size, 2),
                          whole_values(bias ? out_size : 0, 3), whole_values(batch * out_size, 4)};
        const Expected want = expect(reference::as_convolution(d), in);
        d.type = DType::bf16;
        const auto backend = make_cpu_backend(1);
        const auto op = backend->make(d);
        INFO("linear ", in_size, " -> ", out_size, ", batch ", batch, " by ", op->implementation());
        check_exact(run(*backend, *op, in), want);
      }
    }
  }
}

/// Checks sums of non-whole numbers: they are computed in fp32, in any order.
TEST_CASE("sums of products in bf16 are fp32") {
  if (!have_bf16()) return;
  const auto backend = make_cpu_backend(1);
  const auto values = [](std::int64_t count, std::uint64_t seed) {
    return widened(rounded(random_values(count, seed)));
  };
  Conv2dDesc d = conv_case(8, {13, 13, 20}, 50, {5, 5});
  const Input in = {values(d.batch * d.in.elements(), 1), values(weight_count(d), 2),
                    random_values(d.conv_out.c, 3), values(d.batch * d.out.elements(), 4)};
  const auto x = to_double(in.x), weight = to_double(in.weight), bias = to_double(in.bias);
  const auto y = reference::conv(d, x, weight, bias);
  const auto want = reference::conv2d_backward(d, x, weight, bias, to_double(in.dy));
  d.type = DType::bf16;
  const auto op = backend->make(d);
  const Output got = run(*backend, *op, in);
  // Half a unit in the last of an activation's 8 bits is up to 2^-8 of the activation.
  check_close("y", got.y, y, 0x1p-8 + 2.5e-5);
  check_close("dx", got.dx, want.x, 0x1p-8 + 2.5e-5);
  check_close("dweight", got.dweight, want.weight, 2.5e-5);
  check_close("dbias", got.dbias, want.bias, 2.5e-5);
}

TEST_CASE("products in bf16 are refused where the processor has no instructions for them") {
  if (onednn::has_bf16()) {
    skip_test("this processor has bf16 instructions");
    return;
  }
  std::string processor = onednn::instruction_set();
  for (char& letter : processor) letter = static_cast<char>(std::toupper(letter));
  const std::string because = fmt::format(fmt::runtime(kRefusal), processor);
  Conv2dDesc conv = conv_case(2, {4, 4, 1}, 1, {3, 3});
  conv.type = DType::bf16;
  LinearDesc linear;
  linear.batch = linear.in = linear.out = 1;
  linear.type = DType::bf16;
  for (const int threads : {1, 2}) {
    const auto backend = make_cpu_backend(threads);
    CHECK(refused([&] { backend->make(conv); }) == "cpu: a convolution" + because);
    CHECK(refused([&] { backend->make(linear); }) == "cpu: a linear layer" + because);
  }
}

}  // namespace
}  // namespace dpt::testing
