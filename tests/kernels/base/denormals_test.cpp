// Denormal numbers are flushed to zero on every thread that computes.
#include <doctest/doctest.h>

#include <algorithm>
#include <cfenv>
#include <cstring>
#include <thread>
#include <vector>

#include "kernels/base/denormals.h"
#include "kernels/base/start_thread.h"
#include "kernels/common/optimizers/formulas.h"
#include "kernels/cpu/parallel.h"
#include "kernels/devices.h"
#include "tests/support/op_runner.h"

namespace dpt {
namespace {

using testing::OnDevice;

constexpr float kDenormal = 1e-40F;
// The square of kSmall is denormal.
constexpr float kSmall = 1e-20F;

/// Multiplies without letting the compiler compute the product.
float product(float a, float b) {
  const volatile float left = a, right = b;
  return left * right;
}

/// Runs `body` in a thread with the processor's default arithmetic, as at the start of a program.
template <class Body>
void in_plain_thread(const Body& body) {
  std::thread([&] {
    // A thread inherits the mode of its parent, and an earlier test may have created a backend
    // there.
    std::fesetenv(FE_DFL_ENV);
    REQUIRE(!flushes_denormals());
    CHECK(product(kDenormal, 1.0F) == kDenormal);
    body();
  }).join();
}

TEST_CASE("flush_denormals: neither results nor operands are denormal") {
  in_plain_thread([] {
    flush_denormals();
    CHECK(flushes_denormals());
    CHECK(product(kSmall, kSmall) == 0.0F);    // FTZ
    CHECK(product(kDenormal, 1e20F) == 0.0F);  // DAZ: the product itself is a normal number
    CHECK(product(kSmall, 1e-10F) == 1e-20F * 1e-10F);
  });
}

TEST_CASE("denormals: a thread of ours flushes them, and so do the threads that it starts") {
  in_plain_thread([] {
    bool own = false, inner = false;
    start_thread("a test", [&] {
      own = flushes_denormals();
      std::thread([&] { inner = flushes_denormals(); }).join();
    }).join();
    CHECK(own);
    CHECK(inner);
  });
}

TEST_CASE("denormals: every thread of an OpenMP team flushes them, one from before too") {
  in_plain_thread([] {
    std::vector<int> flushed(4);
    // The team of threads starts before any flushing.
#pragma omp parallel for num_threads(4) schedule(static)
    for (int i = 0; i < 4; ++i) flushed[i] = flushes_denormals() ? 1 : 0;
    const auto backend = make_backend(parse_device("cpu:4"));
    // A parallel region outside dpt's control, like oneDNN's.
#pragma omp parallel for num_threads(4) schedule(static)
    for (int i = 0; i < 4; ++i) flushed[i] = flushes_denormals() ? 1 : 0;
    CHECK(flushed == std::vector<int>{1, 1, 1, 1});
    // A parallel region of dpt with another team size.
    std::fill(flushed.begin(), flushed.end(), 0);
    parallel_for(3, 3, [&](std::int64_t i) { flushed[i] = flushes_denormals() ? 1 : 0; });
    CHECK(flushed == std::vector<int>{1, 1, 1, 0});
  });
}

TEST_CASE("denormals: layers and the optimizer on one thread and on teams make zeros of them") {
  for (const char* device : {"cpu", "cpu:2", "cpu:3"}) {
    CAPTURE(device);
    in_plain_thread([&] {
      const auto backend = make_backend(parse_device(device));
      constexpr std::int64_t kCount = 4096;
      const std::vector<float> denormal(kCount, kDenormal), ones(kCount, 1.0F);

      // Momentum decays into denormals if the gradient is zero.
      FormulaStep<SgdFormula<true>> now;
      now.step.lr = 0.1F;
      now.step.momentum = now.step.keep = 0.9F;
      UpdateStep block = {};
      std::memcpy(&block, &now, sizeof(now));
      const OnDevice<float> params(*backend, ones), grads(*backend, denormal),
          momentum(*backend, std::vector<float>(kCount, 1.2e-38F));
      const OnDevice<StepScalars> scalars(*backend, {StepScalars{}});
      const OnDevice<UpdateStep> steps(*backend, {block});
      OptimizerArgs step;
      step.params = params.ptr();
      step.grads = grads.ptr();
      step.states[0] = momentum.ptr();
      step.scalars = scalars.ptr();
      step.steps = steps.ptr();
      backend->optimizer({formula_index<SgdFormula<true>>(), {{0, kCount, 0}}})->step(step);
      const std::vector<float> after = momentum.get();
      CHECK(std::all_of(after.begin(), after.end(), [](float v) { return v == 0.0F; }));

      // A linear layer that sums 1e-20 x 1e-20 over 64 inputs.
      LinearDesc linear;
      linear.batch = 64;
      linear.in = 64;
      linear.out = 64;
      const auto op = backend->make(linear);
      const std::vector<float> small(64 * 64, kSmall);
      const OnDevice<float> x(*backend, small), weight(*backend, small),
          bias(*backend, std::vector<float>(64, 0.0F)), y(*backend, ones);
      const OnDevice<float> scratch(*backend, std::vector<float>(op->scratch_bytes() / 4 + 16));
      OpArgs args;
      args.x = x.ptr();
      args.y = y.ptr();
      args.params[WeightAndBias::kWeight].f32 = weight.ptr();
      args.params[WeightAndBias::kBias].f32 = bias.ptr();
      args.scratch = scratch.ptr();
      op->forward(args);
      const std::vector<float> out = y.get();
      CHECK(std::all_of(out.begin(), out.begin() + 64 * 64, [](float v) { return v == 0.0F; }));
    });
  }
}

}  // namespace
}  // namespace dpt
