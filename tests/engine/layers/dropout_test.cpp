#include <cmath>
#include <numeric>

#include "engine/layers/activation_shape.h"
#include "kernels/devices.h"
#include "tests/kernels/bf16_values.h"
#include "tests/support/layer_case.h"

namespace dpt::testing {
namespace {

constexpr std::uint64_t kSeed = 0x1234567890ABCDEFULL, kStream = 42;

DropoutDesc description(std::int64_t batch, const SampleShape& shape, double p, bool channels) {
  DropoutDesc desc;
  desc.batch = batch;
  desc.shape = shape;
  desc.p = p;
  desc.channels = channels;
  desc.seed = kSeed;
  desc.stream = kStream;
  return desc;
}

std::vector<std::unique_ptr<Backend>> all_backends() {
  std::vector<std::unique_ptr<Backend>> all;
  for (const std::string& name : backend_names()) all.push_back(make_backend(parse_device(name)));
  return all;
}

/// Returns y for x = 1, that is, the factors.
std::vector<float> factors(Backend& backend, const DropoutDesc& desc,
                           const std::vector<std::int64_t>& ids, std::int64_t step) {
  const std::unique_ptr<Op> op = backend.make(desc);
  const std::int64_t count = desc.batch * desc.shape.elements();
  OpRunner runner(backend, *op, std::vector<float>(static_cast<std::size_t>(count), 1.0F), {}, {},
                  count);
  runner.draw_for(ids, step);
  return runner.forward();
}

TEST_CASE("Dropout: any shape; Dropout2d: images") {
  const auto elements = layer("Dropout"), channels = layer("Dropout2d");
  CHECK(infer(*elements, image(3, 4, 5)).text() == "3x4x5");
  CHECK(infer(*elements, vector_of(7)).text() == "7");
  CHECK(infer(*channels, image(3, 4, 5)).text() == "3x4x5");
  CHECK(infer_error(*channels, vector_of(7)) ==
        "expected an image (C x H x W) as input, found a vector of 7 features; use Dropout, or "
        "move it before the Flatten");
  for (const Layer* each : {elements.get(), channels.get()}) {
    CHECK(each->is_in_place());
    CHECK_FALSE(each->is_view());
    CHECK(each->detail() == "p 0.5");
    const ActivationShape in = image(3, 4, 5);
    CHECK(each->params({&in, 1}).empty());
  }
  CHECK(layer("Dropout", {{"p", 0.1}})->detail() == "p 0.1");
}

TEST_CASE("dropout agrees with the reference in both directions, in place too") {
  const std::vector<std::int64_t> ids = {7, 0, 59999};
  for (const auto& backend : all_backends()) {
    CAPTURE(backend->info().name);
    for (const bool channels : {false, true}) {
      for (const SampleShape& shape :
           {SampleShape{5, 7, 3}, SampleShape{2, 3, 16}, SampleShape{1, 1, 37},
            SampleShape{3, 1, 6}, SampleShape{1, 1, 5000}}) {
        CAPTURE(channels);
        CAPTURE(shape.c);
        const DropoutDesc desc = description(3, shape, 0.3, channels);
        const Values want = reference::dropout_factors(desc, ids, 12);
        const auto count = static_cast<std::int64_t>(want.size());
        const std::vector<float> x = random_values(count, 1), dy = random_values(count, 2);
        const std::unique_ptr<Op> op = backend->make(desc);
        OpRunner runner(*backend, *op, x, {}, {}, count);
        runner.draw_for(ids, 12);
        check_close("y", runner.forward(), reference::product(to_double(x), want), 1e-7);
        // Backward needs neither x nor y: the runner has overwritten both with NaN.
        check_close("dx", runner.backward(dy).dx, reference::product(to_double(dy), want), 1e-7);
        CHECK_FALSE(op->passes_dy());
        CHECK(op->saved_bytes() == 0);

        REQUIRE(op->in_place());
        OpArgs args = runner.args();
        args.y = args.x;
        args.dx = args.dy;
        op->forward(args);
        op->backward(args);
        std::vector<float> y(x.size()), dx(x.size());
        backend->download(y.data(), args.y, y.size() * sizeof(float));
        backend->download(dx.data(), args.dx, dx.size() * sizeof(float));
        backend->synchronize();
        check_close("y in place", y, reference::product(to_double(x), want), 1e-7);
        check_close("dx in place", dx, reference::product(to_double(dy), want), 1e-7);
      }
    }
  }
}

TEST_CASE("dropout in bf16 drops the same and rounds once") {
  const std::vector<std::int64_t> ids = {3, 4};
  for (const auto& backend : all_backends()) {
    CAPTURE(backend->info().name);
    for (const bool channels : {false, true}) {
      DropoutDesc desc = description(2, {3, 1, 11}, 0.3, channels);
      desc.type = DType::bf16;
      const Values want = reference::dropout_factors(desc, ids, 5);
      const std::vector<Bf16> x = rounded(random_values(66, 1));
      OnDevice<Bf16> at(*backend, x), y(*backend, x);
      const OnDevice<std::int64_t> ids_at(*backend, ids), step(*backend, {5});
      const std::unique_ptr<Op> op = backend->make(desc);
      const OnDevice<std::uint8_t> scratch(*backend,
                                           std::vector<std::uint8_t>(op->scratch_bytes() + 1));
      OpArgs args;
      args.x = at.ptr();
      args.y = y.ptr();
      args.ids = ids_at.ptr();
      args.step = step.ptr();
      args.scratch = scratch.ptr();
      op->forward(args);
      scratch.check_guard();
      check_rounded("y", widened(y.get()), reference::product(to_double(widened(x)), want));
    }
  }
}

TEST_CASE("dropout keeps 1 - p of the units and the mean") {
  for (const auto& backend : all_backends()) {
    CAPTURE(backend->info().name);
    for (const double p : {0.1, 0.5, 0.9}) {
      CAPTURE(p);
      const std::vector<float> got =
          factors(*backend, description(2, {1, 1, 20000}, p, false), {1, 2}, 1);
      double kept = 0;
      for (const float factor : got) {
        if (factor == 0) continue;
        CHECK(factor == doctest::Approx(1 / (1 - p)));
        ++kept;
      }
      const auto n = static_cast<double>(got.size());
      // The tolerance is five standard deviations.
      CHECK(std::abs(kept / n - (1 - p)) < 5 * std::sqrt(p * (1 - p) / n));
      CHECK(std::accumulate(got.begin(), got.end(), 0.0) / n ==
            doctest::Approx(kept / n / (1 - p)));
    }
    // Whole channels are dropped. There are 600, over two samples.
    const std::vector<float> got =
        factors(*backend, description(2, {3, 2, 300}, 0.5, true), {1, 2}, 1);
    double kept = 0;
    for (std::size_t sample = 0; sample < 2; ++sample) {
      for (std::size_t c = 0; c < 300; ++c) {
        const float first = got[sample * 1800 + c];
        for (std::size_t pixel = 1; pixel < 6; ++pixel) {
          REQUIRE(got[sample * 1800 + pixel * 300 + c] == first);
        }
        if (first != 0) ++kept;
      }
    }
    CHECK(std::abs(kept / 600 - 0.5) < 5 * std::sqrt(0.25 / 600));
  }
}

TEST_CASE("a sample's mask depends on seed, layer, step and sample, not on its place in a batch") {
  for (const auto& backend : all_backends()) {
    CAPTURE(backend->info().name);
    for (const bool channels : {false, true}) {
      const SampleShape shape{1, 1, 101};
      const DropoutDesc both = description(2, shape, 0.5, channels);
      const DropoutDesc one = description(1, shape, 0.5, channels);
      const std::vector<float> pair = factors(*backend, both, {10, 20}, 3);
      const std::vector<float> first(pair.begin(), pair.begin() + 101);
      const std::vector<float> second(pair.begin() + 101, pair.end());
      CHECK(factors(*backend, one, {10}, 3) == first);
      CHECK(factors(*backend, one, {20}, 3) == second);
      CHECK(first != second);
      CHECK(factors(*backend, one, {10}, 4) != first);
      DropoutDesc other = one;
      other.seed += std::uint64_t{1} << 40;
      CHECK(factors(*backend, other, {10}, 3) != first);
      other = one;
      ++other.stream;
      CHECK(factors(*backend, other, {10}, 3) != first);
    }
  }
}

TEST_CASE("dropout passes its input on in evaluation, and with p = 0") {
  for (const auto& backend : all_backends()) {
    CAPTURE(backend->info().name);
    for (const bool training : {false, true}) {
      DropoutDesc desc = description(3, {2, 3, 5}, training ? 0.0 : 0.5, true);
      desc.training = training;
      CHECK(backend->make(desc)->scratch_bytes() == 0);
      desc.channels = false;
      const std::unique_ptr<Op> op = backend->make(desc);
      CHECK(op->scratch_bytes() == 0);
      const std::vector<float> x = random_values(90, 1), dy = random_values(90, 2);
      OpRunner runner(*backend, *op, x, {}, {}, 90);  // no sample numbers: nothing is drawn
      CHECK(runner.forward() == x);
      CHECK(op->passes_dy());
      CHECK(runner.backward(dy).dx == dy);
    }
  }
}

TEST_CASE("dropout refuses what it cannot compute") {
  for (const auto& backend : all_backends()) {
    const std::string name = backend->info().name;
    CAPTURE(name);
    std::string text;
    try {
      backend->make(description(1, {1, 1, 4}, 1.0, false));
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::device);
      text = error.what();
    }
    CHECK(text.find("dropout needs a probability from 0 to below 1 and fewer than 17179869184 "
                    "elements in a sample, found 1 and 4") != std::string::npos);
  }
}

TEST_CASE("StochasticDepth drops whole samples") {
  const auto depth = layer("StochasticDepth", {{"p", 0.5}});
  CHECK(infer(*depth, image(3, 4, 5)).text() == "3x4x5");
  CHECK(infer(*depth, vector_of(7)).text() == "7");
  CHECK(depth->is_in_place());
  constexpr std::int64_t kBatch = 64;
  std::vector<std::int64_t> ids(kBatch);
  std::iota(ids.begin(), ids.end(), 5);
  const ActivationShape in = image(3, 2, 2);
  std::vector<float> first;
  for (const auto& backend : all_backends()) {
    CAPTURE(backend->info().name);
    const std::unique_ptr<Op> op = compile(*depth, *backend, in, kBatch);
    const std::int64_t count = kBatch * in.elements();
    OpRunner runner(*backend, *op, std::vector<float>(static_cast<std::size_t>(count), 1.0F), {},
                    {}, count);
    runner.draw_for(ids, 3);
    const std::vector<float> y = runner.forward();
    int kept = 0;
    for (std::size_t i = 0; i < y.size(); ++i) {
      CHECK((y[i] == 0 || y[i] == 2));
      CHECK(y[i] == y[i - i % 12]);
      kept += i % 12 == 0 && y[i] != 0;
    }
    CHECK(kept > kBatch / 4);
    CHECK(kept < 3 * kBatch / 4);
    if (first.empty()) first = y;
    CHECK(same_bits(y, first));
    CHECK(same_bits(runner.backward(std::vector<float>(y.size(), 1.0F)).dx, y));
  }
}

}  // namespace
}  // namespace dpt::testing
