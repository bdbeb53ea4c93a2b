// What our own kernels on cards do beyond the CPU's: bf16, many classes, large batches, replayed
// recordings, and the same bits as the CPU where both compile the same text. Through the Backend
// interface; skipped where there is no card.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/common/bf16.h"
#include "kernels/common/softmax.h"
#include "kernels/devices.h"
#include "kernels/error.h"
#include "tests/kernels/cases.h"
#include "tests/support/backends.h"
#include "tests/support/close.h"
#include "tests/support/op_runner.h"
#include "tests/support/reference.h"

namespace dpt::testing {
namespace {

/// The first card, or null where there is none.
std::unique_ptr<Backend> card() {
  const char* test = doctest::getContextOptions()->currentTest->m_name;
  return have_card(test) ? make_backend(parse_device("cuda:0")) : nullptr;
}

std::vector<Bf16> rounded(const std::vector<float>& values) {
  std::vector<Bf16> result;
  for (const float value : values) result.push_back(to_bf16(value));
  return result;
}
std::vector<float> widened(const std::vector<Bf16>& values) {
  std::vector<float> result;
  for (const Bf16 value : values) result.push_back(to_float(value));
  return result;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

/// A result in bf16 is an fp32 number (whose error is far smaller) rounded once to 8 bits of
/// mantissa: it errs by 2^-8 of itself, and here may by a little more. What comes near zero by
/// cancellation has the fp32 error of the terms.
void check_rounded(const std::string& what, const std::vector<float>& got,
                   const std::vector<double>& want) {
  INFO(what);
  REQUIRE(got.size() == want.size());
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double value = static_cast<double>(got[i]);
    const bool same = std::isfinite(want[i])
                          ? std::abs(value - want[i]) <= 0x1.1p-8 * std::abs(want[i]) + 2e-6
                          : value == want[i] || (std::isnan(value) && std::isnan(want[i]));
    if (!same) ++wrong;
  }
  CHECK(wrong == 0);
}

struct Bf16Result {
  std::vector<float> y, dx;
};
/// Forward and backward of an operation without parameters.
Bf16Result run(Backend& backend, Op& op, const std::vector<Bf16>& x, const std::vector<Bf16>& dy) {
  const Bf16 nan = to_bf16(std::numeric_limits<float>::quiet_NaN());
  const OnDevice<Bf16> x_at(backend, x), dy_at(backend, dy);
  const OnDevice<Bf16> y_at(backend, std::vector<Bf16>(dy.size(), nan));
  const OnDevice<Bf16> dx_at(backend, std::vector<Bf16>(x.size(), nan));
  const OnDevice<std::uint8_t> saved(backend, std::vector<std::uint8_t>(op.saved_bytes() + 1));
  OpArgs args;
  args.x = x_at.ptr();
  args.y = y_at.ptr();
  args.dx = dx_at.ptr();
  args.dy = dy_at.ptr();
  args.saved = saved.ptr();
  op.forward(args);
  op.backward(args);
  return {widened(y_at.get()), widened(dx_at.get())};
}

TEST_CASE("pooling in bf16 agrees with the reference") {
  const auto backend = card();
  if (!backend) return;
  for (Pool2dDesc d : pool_cases()) {
    INFO(text(d));
    const std::vector<Bf16> x = rounded(random_values(d.batch * d.in.elements(), 1));
    const std::vector<Bf16> dy = rounded(random_values(d.batch * d.out.elements(), 2));
    d.type = DType::bf16;
    const auto op = backend->pool2d(d);
    const Bf16Result got = run(*backend, *op, x, dy);
    const std::vector<double> values = to_double(widened(x));
    check_rounded("y", got.y, reference::pool(d, values));
    check_rounded("dx", got.dx, reference::pool_backward(d, values, to_double(widened(dy))));
  }
}

TEST_CASE("max pooling keeps a byte a window where its positions fit, else two or four") {
  const auto backend = card();
  if (!backend) return;
  for (const auto& [kernel, bytes] :
       {std::pair{15, 1}, std::pair{16, 2}, std::pair{255, 2}, std::pair{256, 4}}) {
    const Size2 window{kernel, kernel};
    const Pool2dDesc d = pool_case(PoolKind::max, 2, {kernel + 1, kernel + 1, 3}, window, {1, 1});
    const auto op = backend->pool2d(d);
    CHECK(op->saved_bytes() == static_cast<std::size_t>(d.batch * d.out.elements() * bytes));
    // The largest is the last of all positions in the first window.
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
  const auto backend = card();
  if (!backend) return;
  const auto cpu = make_cpu_backend(1);
  std::vector<Pool2dDesc> cases = pool_cases();
  // Windows that tile the input, leave some of it out, or hang over.
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
    const auto here = cpu->pool2d(d), there = backend->pool2d(d);
    OpRunner a(*cpu, *here, x, {}, {}, static_cast<std::int64_t>(dy.size()));
    OpRunner b(*backend, *there, x, {}, {}, static_cast<std::int64_t>(dy.size()));
    CHECK(same_bits(a.forward(), b.forward()));
    CHECK(same_bits(a.backward(dy).dx, b.backward(dy).dx));
  }
}

TEST_CASE("ReLU in bf16, also where packs of eight do not fit") {
  const auto backend = card();
  if (!backend) return;
  for (const std::int64_t c : {1, 8, 2049}) {
    ReluDesc d;
    d.batch = 3;
    d.shape = {1, 1, c};
    d.type = DType::bf16;
    std::vector<Bf16> x = rounded(random_values(3 * c, 1)), dy = rounded(random_values(3 * c, 2));
    x[0] = to_bf16(std::numeric_limits<float>::quiet_NaN());
    x[1] = to_bf16(0.0F);
    const auto op = backend->relu(d);
    const Bf16Result got = run(*backend, *op, x, dy);
    const std::vector<double> y = reference::relu(to_double(widened(x)));
    check_close("y", got.y, y, 0);
    check_close("dx", got.dx, reference::relu_backward(to_double(widened(dy)), y), 0);
  }
}

struct LossResult {
  std::vector<float> gradient, sample_loss;
  std::vector<std::int32_t> prediction;
  StepMetrics metrics;
};

/// T is float or Bf16, as the description says. The gradient overwrites the logits.
template <class T>
LossResult run_loss(Backend& backend, const CrossEntropyDesc& d, const std::vector<T>& logits,
                    const std::vector<std::int32_t>& labels) {
  std::vector<std::int32_t> slots;
  for (std::size_t k = 0; k < labels.size(); ++k) slots.push_back(static_cast<std::int32_t>(k));
  const OnDevice<T> x(backend, logits);
  const OnDevice<std::int32_t> places(backend, slots), all(backend, labels),
      prediction(backend, labels);
  const OnDevice<float> scale(backend, {0.25F}), loss(backend, std::vector<float>(labels.size()));
  const OnDevice<StepMetrics> metrics(backend, {StepMetrics{}});
  CrossEntropyArgs args;
  args.logits = args.dlogits = x.ptr();
  args.labels = all.ptr();
  args.slots = places.ptr();
  args.metrics = metrics.ptr();
  args.sample_loss = loss.ptr();
  args.prediction = prediction.ptr();
  args.inverse_count = scale.ptr();
  backend.cross_entropy(d)->run(args);
  LossResult result;
  for (const T value : x.get()) result.gradient.push_back(to_float(value));
  result.sample_loss = loss.get();
  result.prediction = prediction.get();
  result.metrics = metrics.get()[0];
  return result;
}

std::vector<std::int32_t> some_labels(std::int64_t batch, std::int64_t classes) {
  std::vector<std::int32_t> labels;
  for (std::int64_t k = 0; k < batch; ++k) {
    labels.push_back(static_cast<std::int32_t>((k * 7919 + 3) % classes));
  }
  return labels;
}

/// The kernel gives a row to 8 threads, to a warp or to a block, and a batch to one block or more.
TEST_CASE("cross-entropy for every number of classes and samples, in fp32 and bf16") {
  const auto backend = card();
  if (!backend) return;
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
        CHECK(got.metrics.correct == static_cast<float>(want.correct));
        CHECK(got.metrics.count == static_cast<float>(batch));
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

TEST_CASE("cross-entropy of few classes has the CPU's bits") {
  const auto backend = card();
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
    // The logarithm of a card may differ in the last bit of a double.
    check_close("loss per sample", there.sample_loss, to_double(here.sample_loss), 1e-7);
  }
}

TEST_CASE("a label that no class has makes the loss not a number, and touches nothing else") {
  const auto backend = card();
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

TEST_CASE("the input kernel in bf16 rounds what it gives in fp32") {
  const auto backend = card();
  if (!backend) return;
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
    for (const float v : random_values(static_cast<std::int64_t>(bytes), 1)) {
      raw.push_back(static_cast<std::uint8_t>((v + 1) * 127));
    }
    const OnDevice<std::uint8_t> samples(*backend, raw);
    const OnDevice<std::int32_t> slots(*backend, {4, 0, 3, 3, 1});
    const OnDevice<std::int64_t> ids(*backend, {7, 8, 9, 10, 11}), epoch(*backend, {3});
    const auto count = static_cast<std::size_t>(d.batch * d.out.elements());
    const OnDevice<float> full(*backend, std::vector<float>(count));
    const OnDevice<Bf16> half(*backend, std::vector<Bf16>(count));
    backend->input(d)->run({samples.ptr(), slots.ptr(), ids.ptr(), epoch.ptr(), full.ptr()});
    d.type = DType::bf16;
    backend->input(d)->run({samples.ptr(), slots.ptr(), ids.ptr(), epoch.ptr(), half.ptr()});
    CHECK(same_bits(half.get(), rounded(full.get())));
  }
}

TEST_CASE("a replayed recording of kernels that count their blocks gives the same bits") {
  const auto backend = card();
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
  const auto loss = backend->cross_entropy(d);
  CrossEntropyArgs args;
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
  const auto recording = backend->capture(work);
  REQUIRE(recording);
  for (int i = 0; i < 3; ++i) {
    metrics.set({StepMetrics{}});
    scalars.set({StepScalars{}});
    backend->replay(*recording);
    const StepMetrics got = metrics.get()[0];
    CHECK(std::memcmp(&got, &want, sizeof(got)) == 0);
    CHECK(scalars.get()[0].grad_norm == norm);
  }
}

TEST_CASE("what our kernels on cards cannot run is refused when they are made") {
  const auto backend = card();
  if (!backend) return;
  const auto refused = [](const auto& make) {
    try {
      make();
    } catch (const Error& error) {
      return error.kind() == ErrorKind::device ? std::string(error.what()) : std::string();
    }
    return std::string();
  };
  ReluDesc relu;
  relu.batch = 2;
  relu.type = DType::u8;
  CHECK(refused([&] { backend->relu(relu); }) ==
        "cuda:0: relu in u8 is not available: this backend computes in fp32 and bf16");
  CrossEntropyDesc loss;
  loss.classes = 3;
  CHECK(refused([&] { backend->cross_entropy(loss); }) ==
        "cuda:0: cross-entropy needs a batch of at least 1, not 0");
  InputDesc input;
  input.raw = {4, 5, 1};
  input.out = {4, 4, 1};
  CHECK(refused([&] { backend->input(input); }) ==
        "input kernel (cuda:0): cannot make 4x4x1 (height, width, channels) from 4x5x1 as it is "
        "with padding 0, batch 0");
  input.type = DType::i32;
  CHECK(refused([&] { backend->input(input); }) ==
        "input kernel (cuda:0): activations of type i32 are not supported, use fp32 or bf16");
  Pool2dDesc pool = pool_case(PoolKind::average, 1, {4, 4, 1}, {2, 2}, {1, 1}, {0, 0}, {2, 2});
  CHECK(refused([&] { backend->pool2d(pool); }) ==
        "cuda:0: average pooling has no dilation, found (2, 2)");
  pool = pool_case(PoolKind::max, 1, {65536, 65536, 1}, {2, 2}, {2, 2});
  CHECK(refused([&] { backend->pool2d(pool); }) ==
        "cuda:0: pooling 65536x65536x1 to 32768x32768x1 (height, width, channels) is too large: a "
        "sample may have 2147483647 elements");
}

}  // namespace
}  // namespace dpt::testing
