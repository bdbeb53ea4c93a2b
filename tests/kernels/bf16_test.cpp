// dpt's own bf16 kernels on every backend: pooling, ReLU, sums, cross-entropy and the input kernel
// against the reference, on numbers that bf16 holds exactly. (Products in bf16:
// cpu/bf16_products_test.cpp and tests/kernels/cuda.)
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "kernels/devices.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/bf16_values.h"
#include "tests/kernels/cases.h"
#include "tests/support/backends.h"
#include "tests/support/close.h"
#include "tests/support/loss_runner.h"
#include "tests/support/op_runner.h"

namespace dpt::testing {
namespace {

struct Bf16Result {
  std::vector<float> y, dx;
};
/// Runs forward and, in training, backward of an operation without parameters. `x` holds all
/// `inputs`, one after another.
Bf16Result run(Backend& backend, Op& op, const std::vector<Bf16>& x, const std::vector<Bf16>& dy,
               bool training = true, std::size_t inputs = 1) {
  const float not_a_number = std::numeric_limits<float>::quiet_NaN();
  const Bf16 nan = to_bf16(not_a_number);
  const OnDevice<Bf16> x_at(backend, x), dy_at(backend, dy);
  const OnDevice<Bf16> y_at(backend, std::vector<Bf16>(dy.size(), nan));
  const OnDevice<Bf16> dx_at(backend, std::vector<Bf16>(x.size() / inputs, nan));
  const OnDevice<std::uint8_t> saved(backend, std::vector<std::uint8_t>(op.saved_bytes() + 1));
  constexpr std::size_t kBehind = 16;
  const OnDevice<float> scratch(
      backend, std::vector<float>(op.scratch_bytes() / sizeof(float) + kBehind, not_a_number));
  OpArgs args;
  args.x = x_at.ptr();
  for (std::size_t k = 1; k < inputs; ++k) {
    args.more_x[k - 1] = x_at.ptr() + k * (x.size() / inputs) * sizeof(Bf16);
  }
  args.y = y_at.ptr();
  args.dx = dx_at.ptr();
  args.dy = dy_at.ptr();
  args.saved = saved.ptr();
  args.scratch = scratch.ptr();
  op.forward(args);
  if (training) op.backward(args);
  saved.check_guard();
  if (training && op.backward_keeps_dy()) CHECK(widened(dy_at.get()) == widened(dy));
  // The memory after the requested scratch does not belong to the operation.
  const std::vector<float> after = scratch.get();
  for (std::size_t i = 1; i <= kBehind; ++i) CHECK(std::isnan(after[after.size() - i]));
  return {widened(y_at.get()), widened(dx_at.get())};
}

TEST_CASE("pooling in bf16 agrees with the reference") {
  for (const auto& backend : backends()) {
    INFO(backend->info().name);
    for (Pool2dDesc d : pool_cases()) {
      INFO(text(d));
      const std::vector<Bf16> x = rounded(random_values(d.batch * d.in.elements(), 1));
      const std::vector<Bf16> dy = rounded(random_values(d.batch * d.out.elements(), 2));
      d.type = DType::bf16;
      const auto op = backend->make(d);
      const Bf16Result got = run(*backend, *op, x, dy);
      const std::vector<double> values = to_double(widened(x));
      check_rounded("y", got.y, reference::pool(d, values));
      check_rounded("dx", got.dx, reference::pool_backward(d, values, to_double(widened(dy))));
      d.training = false;
      const auto inference = backend->make(d);
      CHECK(run(*backend, *inference, x, dy, false).y == got.y);
    }
  }
}

TEST_CASE("ReLU in bf16, also where packs of eight do not fit") {
  for (const auto& backend : backends()) {
    INFO(backend->info().name);
    for (const std::int64_t c : {1, 8, 2049}) {
      ReluDesc d;
      d.batch = 3;
      d.shape = {1, 1, c};
      d.type = DType::bf16;
      std::vector<Bf16> x = rounded(random_values(3 * c, 1)), dy = rounded(random_values(3 * c, 2));
      x[0] = to_bf16(std::numeric_limits<float>::quiet_NaN());
      x[1] = to_bf16(0.0F);
      const auto op = backend->make(d);
      const Bf16Result got = run(*backend, *op, x, dy);
      const std::vector<double> y = reference::relu(to_double(widened(x)));
      check_close("y", got.y, y, 0);
      check_close("dx", got.dx, reference::relu_backward(to_double(widened(dy)), y), 0);
    }
  }
}

TEST_CASE("a sum in bf16 is rounded once") {
  for (const auto& backend : backends()) {
    INFO(backend->info().name);
    for (const std::int64_t c : {1, 8, 2049}) {
      for (const bool relu : {false, true}) {
        SumDesc d;
        d.batch = 3;
        d.shape = {1, 1, c};
        d.inputs = 3;
        d.relu = relu;
        d.type = DType::bf16;
        std::vector<Bf16> x = rounded(random_values(9 * c, 1)),
                          dy = rounded(random_values(3 * c, 2));
        x[0] = to_bf16(std::numeric_limits<float>::quiet_NaN());
        const auto op = backend->make(d);
        const Bf16Result got = run(*backend, *op, x, dy, true, 3);
        const std::vector<double> all = to_double(widened(x));
        check_rounded("y", got.y, reference::sum(d, all));
        std::vector<double> dx = reference::sum_backward(d, all, to_double(widened(dy)));
        dx.resize(dy.size());
        check_close("dx", got.dx, dx, 0);
      }
    }
  }
}

/// Covers all ways in which GPU kernels distribute the work: a row to 8 threads, to a warp or to a
/// block, and a batch to one block or more.
TEST_CASE("cross-entropy for every number of classes and samples, in fp32 and bf16") {
  for (const auto& backend : backends()) {
    INFO(backend->info().name);
    const std::int64_t shapes[][2] = {{1, 10},   {257, 10}, {3000, 3},  {5, 128},  {70, 129},
                                      {3, 2048}, {1, 2049}, {2, 10000}, {513, 16}, {9, 1}};
    for (const auto& [batch, classes] : shapes) {
      for (const float smoothing : {0.0F, 0.1F}) {
        INFO("batch ", batch, ", classes ", classes, ", smoothing ", smoothing);
        CrossEntropyDesc d;
        d.batch = batch;
        d.classes = classes;
        d.label_smoothing = smoothing;
        std::vector<float> logits = random_values(batch * classes, 11);
        for (float& v : logits) v *= 6;
        const std::vector<std::int32_t> labels = some_labels(batch, classes);
        const auto compare = [&](const LossResult& got, const std::vector<float>& exact) {
          const auto want = reference::cross_entropy(d, to_double(exact), labels, 0.25);
          check_close("loss per sample", got.sample_loss, want.sample_loss, 1e-6);
          CHECK(got.prediction == want.prediction);
          CHECK(static_cast<double>(got.metrics.loss_sum) ==
                doctest::Approx(want.loss_sum).epsilon(1e-6));
          CHECK(got.metrics.sums[0].value() == static_cast<double>(want.correct));
          CHECK(got.metrics.count.value() == static_cast<double>(batch));
          return want.gradient;
        };
        const LossResult got = run_loss(*backend, d, logits, labels);
        check_close("gradient", got.gradient, compare(got, logits), 1e-6);

        CrossEntropyDesc half = d;
        half.type = DType::bf16;
        const std::vector<Bf16> halves = rounded(logits);
        const LossResult got_half = run_loss(*backend, half, halves, labels);
        check_rounded("bf16 gradient", got_half.gradient, compare(got_half, widened(halves)));
      }
    }
  }
}

TEST_CASE("the input kernel in bf16 rounds what it gives in fp32") {
  for (const auto& backend : backends()) {
    INFO(backend->info().name);
    for (const std::int64_t c : {1, 3, 4}) {
      InputDesc d;
      d.batch = 5;
      d.raw = {9, 7, c};
      d.out = {8, 6, c};
      d.crop = d.flip = true;
      d.crop_padding = 1;
      d.mean.assign(static_cast<std::size_t>(c), 0.4F);
      d.stddev.assign(static_cast<std::size_t>(c), 0.3F);
      const auto bytes = static_cast<std::size_t>(5 * d.raw.elements());
      std::vector<std::uint8_t> raw;
      const std::vector<float> numbers = random_values(static_cast<std::int64_t>(bytes), 1);
      for (const float v : numbers) {
        raw.push_back(static_cast<std::uint8_t>((v + 1) * 127));
      }
      const OnDevice<std::uint8_t> samples(*backend, raw);
      const OnDevice<float> fp32_samples(*backend, numbers);
      const OnDevice<std::int32_t> slots(*backend, {4, 0, 3, 3, 1});
      const OnDevice<std::int64_t> ids(*backend, {7, 8, 9, 10, 11}), epoch(*backend, {3});
      const OnDevice<InputBox> boxes(*backend, std::vector<InputBox>(5, {1, 2, 3, 2}));
      const OnDevice<InputMix> mix(*backend, {InputMix{0.3F, 0.7F, {0, 0, 8, 6}}});
      d.erase_value.assign(static_cast<std::size_t>(c), 0.7F);
      const auto count = static_cast<std::size_t>(d.batch * d.out.elements());
      const OnDevice<float> full(*backend, std::vector<float>(count));
      const OnDevice<Bf16> half(*backend, std::vector<Bf16>(count));
      for (const DType raw_type : {DType::u8, DType::f32}) {
        d.raw_type = raw_type;
        const DevPtr from = raw_type == DType::u8 ? samples.ptr() : fp32_samples.ptr();
        for (const bool more : {false, true}) {
          // If `more`, samples are erased and mixed. The first sample is then only the second one's
          // partner.
          d.erase = d.mix = more;
          d.batch = more ? 4 : 5;
          const std::size_t lead = more ? 1 : 0;
          const auto run = [&](DType type, DevPtr y) {
            d.type = type;
            backend->make_input(d)->run({from, slots.ptr() + lead * sizeof(std::int32_t),
                                         ids.ptr() + lead * sizeof(std::int64_t), epoch.ptr(), y,
                                         boxes.ptr() + lead * sizeof(InputBox), mix.ptr()});
          };
          run(DType::f32, full.ptr());
          run(DType::bf16, half.ptr());
          CHECK(widened(half.get()) == widened(rounded(full.get())));
        }
      }
    }
  }
}

}  // namespace
}  // namespace dpt::testing
