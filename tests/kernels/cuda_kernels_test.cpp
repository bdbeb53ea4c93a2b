// Features of dpt's own GPU kernels beyond the CPU's: windows of every size, invalid labels,
// replayed captured graphs, and the same bits as the CPU where both compile the same source. Uses
// the Backend interface; skipped without a GPU.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/base/error.h"
#include "kernels/devices.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/cases.h"
#include "tests/support/backends.h"
#include "tests/support/close.h"
#include "tests/support/loss_runner.h"
#include "tests/support/op_runner.h"

namespace dpt::testing {
namespace {

/// Returns the backend of the first GPU, or null without a GPU.
std::unique_ptr<Backend> gpu() {
  return have_gpu() ? make_backend(parse_device("cuda:0")) : nullptr;
}

TEST_CASE("max pooling keeps a byte a window where its positions fit, else two or four") {
  const auto backend = gpu();
  if (!backend) return;
  for (const auto& [kernel, bytes] :
       {std::pair{15, 1}, std::pair{16, 2}, std::pair{255, 2}, std::pair{256, 4}}) {
    const Size2 window{kernel, kernel};
    const Pool2dDesc d = pool_case(PoolKind::max, 2, {kernel + 1, kernel + 1, 3}, window, {1, 1});
    const auto op = backend->make(d);
    CHECK(op->saved_bytes() == static_cast<std::size_t>(d.batch * d.out.elements() * bytes));
    // The largest value is at the last position of the first window.
    std::vector<float> x = random_values(d.batch * d.in.elements(), 1);
    const auto last = static_cast<std::size_t>((kernel - 1) * (kernel + 2) * 3);
    x[last] = 5;
    const std::vector<float> dy = random_values(d.batch * d.out.elements(), 2);
    OpRunner runner(*backend, *op, x, {}, {}, static_cast<std::int64_t>(dy.size()));
    check_close("y", runner.forward(), reference::pool(d, to_double(x)));
    check_close("dx", runner.backward(dy).dx,
                reference::pool_backward(d, to_double(x), to_double(dy)));
  }
}

TEST_CASE("pooling in fp32 has the CPU's bits") {
  const auto backend = gpu();
  if (!backend) return;
  const auto cpu = make_cpu_backend(1);
  std::vector<Pool2dDesc> cases = pool_cases();
  // Windows that tile the input, leave part of it out, or extend beyond it.
  for (const std::int64_t kernel : {2, 3}) {
    const Size2 window{kernel, kernel};
    for (const std::int64_t c : {1, 2, 4}) {
      cases.push_back(pool_case(PoolKind::max, 3, {7, 8, c}, window, window));
      cases.back().out = {(7 + kernel - 1) / kernel, 8 / kernel, c};
    }
  }
  for (const Pool2dDesc& d : cases) {
    INFO(text(d));
    const std::vector<float> x = random_values(d.batch * d.in.elements(), 1);
    std::vector<float> dy = random_values(d.batch * d.out.elements(), 2);
    for (std::size_t i = 0; i < dy.size(); i += 3) dy[i] = -0.0F;
    const auto here = cpu->make(d), there = backend->make(d);
    OpRunner a(*cpu, *here, x, {}, {}, static_cast<std::int64_t>(dy.size()));
    OpRunner b(*backend, *there, x, {}, {}, static_cast<std::int64_t>(dy.size()));
    CHECK(same_bits(a.forward(), b.forward()));
    CHECK(same_bits(a.backward(dy).dx, b.backward(dy).dx));
  }
}

TEST_CASE("cross-entropy of few classes has the CPU's bits") {
  const auto backend = gpu();
  if (!backend) return;
  CrossEntropyDesc d;
  d.batch = 200;
  d.classes = 10;
  for (const float smoothing : {0.0F, 0.1F}) {
    d.label_smoothing = smoothing;
    std::vector<float> logits = random_values(d.batch * d.classes, 11);
    for (float& v : logits) v *= 6;
    const std::vector<std::int32_t> labels = some_labels(d.batch, d.classes);
    const auto cpu = make_cpu_backend(1);
    const LossResult here = run_loss(*cpu, d, logits, labels);
    const LossResult there = run_loss(*backend, d, logits, labels);
    CHECK(same_bits(here.gradient, there.gradient));
    // A GPU's logarithm may differ in the last bit of a double.
    check_close("loss per sample", there.sample_loss, to_double(here.sample_loss), 1e-7);
  }
}

TEST_CASE("a label that no class has makes the loss not a number, and touches nothing else") {
  const auto backend = gpu();
  if (!backend) return;
  for (const std::int64_t classes : {10, 200, 3000}) {
    CrossEntropyDesc d;
    d.batch = 3;
    d.classes = classes;
    const std::vector<float> logits = random_values(d.batch * classes, 1);
    for (const std::int32_t bad : {-1, static_cast<std::int32_t>(classes), -2147483647 - 1}) {
      const LossResult got = run_loss(*backend, d, logits, {1, bad, 2});
      CHECK(std::isnan(got.sample_loss[1]));
      CHECK(std::isnan(got.metrics.loss_sum));
      CHECK(!std::isnan(got.sample_loss[0] + got.sample_loss[2]));
      const auto want = reference::cross_entropy(d, to_double(logits), {1, 1, 2}, 0.25);
      const auto row = static_cast<std::size_t>(classes);
      for (const std::size_t k : {0U, 2U}) {
        const std::vector<float> mine(
            got.gradient.begin() + static_cast<std::ptrdiff_t>(k * row),
            got.gradient.begin() + static_cast<std::ptrdiff_t>((k + 1) * row));
        check_close("gradient", mine,
                    {want.gradient.begin() + static_cast<std::ptrdiff_t>(k * row),
                     want.gradient.begin() + static_cast<std::ptrdiff_t>((k + 1) * row)},
                    1e-6);
      }
    }
  }
}

TEST_CASE("a replayed graph of kernels that count their blocks gives the same bits") {
  const auto backend = gpu();
  if (!backend) return;
  CrossEntropyDesc d;
  d.batch = 1000;
  d.classes = 10;
  d.training = false;
  const OnDevice<float> logits(*backend, random_values(d.batch * d.classes, 1));
  std::vector<std::int32_t> numbers;
  for (std::int32_t k = 0; k < 1000; ++k) numbers.push_back(k);
  const OnDevice<std::int32_t> slots(*backend, numbers), labels(*backend, some_labels(1000, 10));
  const OnDevice<float> grads(*backend, random_values(100000, 2)), one(*backend, {1.0F});
  OnDevice<StepMetrics> metrics(*backend, {StepMetrics{}});
  OnDevice<StepScalars> scalars(*backend, {StepScalars{}});
  const auto loss = backend->make_loss(d);
  LossArgs args;
  args.logits = logits.ptr();
  args.labels = labels.ptr();
  args.slots = slots.ptr();
  args.metrics = metrics.ptr();
  args.inverse_count = one.ptr();
  const auto work = [&] {
    loss->run(args);
    backend->grad_norm(grads.ptr(), 100000, scalars.ptr());
  };
  work();
  const StepMetrics want = metrics.get()[0];
  const float norm = scalars.get()[0].grad_norm;
  CHECK(norm > 0);
  const auto graph = backend->capture(work);
  REQUIRE(graph);
  for (int i = 0; i < 3; ++i) {
    metrics.set({StepMetrics{}});
    scalars.set({StepScalars{}});
    backend->replay(*graph);
    const StepMetrics got = metrics.get()[0];
    CHECK(std::memcmp(&got, &want, sizeof(got)) == 0);
    CHECK(scalars.get()[0].grad_norm == norm);
  }
}

TEST_CASE("descriptions that our GPU kernels cannot run are refused when the kernels are made") {
  const auto backend = gpu();
  if (!backend) return;
  ReluDesc relu;
  relu.batch = 2;
  relu.type = DType::u8;
  CHECK(refused([&] { backend->make(relu); }) ==
        "cuda:0: relu in u8 is not available: this backend computes in fp32 and bf16");
  CrossEntropyDesc loss;
  loss.classes = 3;
  CHECK(refused([&] { backend->make_loss(loss); }) ==
        "cuda:0: cross-entropy needs a batch of at least 1, not 0");
  InputDesc input;
  input.raw = {4, 5, 1};
  input.out = {4, 4, 1};
  CHECK(
      refused([&] { backend->make_input(input); }) ==
      "input kernel (cuda:0): cannot produce 4x4x1 (height, width, channels) from 4x5x1 (crop: no, "
      "padding: 0, batch: 0)");
  input.type = DType::i32;
  CHECK(refused([&] { backend->make_input(input); }) ==
        "input kernel (cuda:0): activations of type i32 are not supported, use fp32 or bf16");
  Pool2dDesc pool = pool_case(PoolKind::average, 1, {4, 4, 1}, {2, 2}, {1, 1}, {0, 0}, {2, 2});
  CHECK(refused([&] { backend->make(pool); }) ==
        "cuda:0: average pooling does not support dilation, found (2, 2)");
  pool = pool_case(PoolKind::max, 1, {65536, 65536, 1}, {2, 2}, {2, 2});
  CHECK(refused([&] { backend->make(pool); }) ==
        "cuda:0: pooling 65536x65536x1 to 32768x32768x1 (height, width, channels) is too large: a "
        "sample may have at most 2147483647 elements");
}

}  // namespace
}  // namespace dpt::testing
