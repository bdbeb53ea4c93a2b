// Compares every operation with a gradient to the double-precision reference, on every backend.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "kernels/devices.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/cases.h"
#include "tests/support/backends.h"
#include "tests/support/close.h"
#include "tests/support/op_runner.h"

namespace dpt::testing {
namespace {

/// The data for testing the guarantees of all operations: the reference's numbers in both
/// directions, GradWrite::add, the same bits in a second run, and forward alone without training.
struct Promise {
  std::string name;
  std::vector<float> x, weight, bias, dy;
  std::vector<double> y;
  reference::Gradients gradients;

  std::int64_t y_count() const { return static_cast<std::int64_t>(y.size()); }
};

void check_training(Backend& backend, Op& op, const Promise& p) {
  INFO(backend.info().name, ": ", p.name, " by ", op.implementation());
  OpRunner runner(backend, op, p.x, p.weight, p.bias, p.y_count());
  check_close("y", runner.forward(), p.y);
  const OpResult first = runner.backward(p.dy);
  check_close("dx", first.dx, p.gradients.x);
  check_close("dweight", first.dweight, p.gradients.weight);
  check_close("dbias", first.dbias, p.gradients.bias);

  const std::vector<float> again = runner.forward();
  CHECK(same_bits(again, first.y));
  std::vector<double> weight_sum = p.gradients.weight, bias_sum = p.gradients.bias;
  for (std::size_t i = 0; i < weight_sum.size(); ++i) weight_sum[i] += first.dweight[i];
  for (std::size_t i = 0; i < bias_sum.size(); ++i) bias_sum[i] += first.dbias[i];
  const OpResult second = runner.backward(p.dy, GradWrite::add);
  CHECK(same_bits(second.dx, first.dx));
  check_close("added dweight", second.dweight, weight_sum);
  check_close("added dbias", second.dbias, bias_sum);
  runner.forward();
  const OpResult third = runner.backward(p.dy);
  CHECK(same_bits(third.dweight, first.dweight));
  CHECK(same_bits(third.dbias, first.dbias));
}

/// Checks backward as in a first layer: parameter gradients only.
void check_without_dx(Backend& backend, Op& op, const Promise& p) {
  INFO(backend.info().name, " without dx: ", p.name, " by ", op.implementation());
  OpRunner runner(backend, op, p.x, p.weight, p.bias, p.y_count());
  check_close("y", runner.forward(), p.y);
  const OpResult result = runner.backward(p.dy);
  check_close("dweight", result.dweight, p.gradients.weight);
  check_close("dbias", result.dbias, p.gradients.bias);
}

void check_inference(Backend& backend, Op& op, const Promise& p) {
  INFO(backend.info().name, " in inference: ", p.name, " by ", op.implementation());
  OpRunner runner(backend, op, p.x, p.weight, p.bias, p.y_count());
  check_close("y", runner.forward(), p.y);
}

void check_conv(Conv2dDesc d) {
  Promise p;
  p.name = text(d);
  p.x = random_values(d.batch * d.in.elements(), 1);
  p.weight = random_values(weight_count(d), 2);
  if (d.bias) p.bias = random_values(d.conv_out.c, 3);
  p.dy = random_values(d.batch * d.out.elements(), 4);
  p.y = reference::conv2d(d, to_double(p.x), to_double(p.weight), to_double(p.bias));
  p.gradients = reference::conv2d_backward(d, to_double(p.x), to_double(p.weight),
                                           to_double(p.bias), to_double(p.dy));
  for (const auto& backend : backends()) {
    check_training(*backend, *backend->make(d), p);
    Conv2dDesc first = d;
    first.input_gradient = false;
    check_without_dx(*backend, *backend->make(first), p);
    Conv2dDesc inference = d;
    inference.training = false;
    if (d.pool) inference.pool->training = false;
    check_inference(*backend, *backend->make(inference), p);
  }
}

TEST_CASE("convolutions with every fusion agree with the reference") {
  for (Conv2dDesc d : conv_cases()) {
    for (const bool bias : {true, false}) {
      for (const bool relu : {true, false}) {
        d.bias = bias;
        d.relu = relu;
        check_conv(d);
        if (bias != relu || d.conv_out.h < 2 || d.conv_out.w < 2) continue;
        check_conv(with_pool(d, PoolKind::max, {2, 2}, {2, 2}));
        check_conv(with_pool(d, PoolKind::average, {2, 2}, {2, 2}));
        if (relu) check_conv(with_pool(d, PoolKind::max, {2, 2}, {1, 1}, {1, 1}));
      }
    }
  }
}

TEST_CASE("linear layers agree with the reference") {
  const std::int64_t shapes[][3] = {{1, 800, 128}, {7, 128, 10}, {4, 1, 1},   {3, 5, 7},
                                    {64, 33, 65},  {1, 1, 9},    {2, 1000, 3}};
  for (const auto& [batch, in, out] : shapes) {
    for (const bool bias : {true, false}) {
      for (const bool relu : {true, false}) {
        LinearDesc d;
        d.batch = batch;
        d.in = in;
        d.out = out;
        d.bias = bias;
        d.relu = relu;
        Promise p;
        p.name = fmt::format("linear {} -> {}, batch {}", in, out, batch);
        p.x = random_values(batch * in, 1);
        p.weight = random_values(in * out, 2);
        if (bias) p.bias = random_values(out, 3);
        p.dy = random_values(batch * out, 4);
        p.y = reference::linear(d, to_double(p.x), to_double(p.weight), to_double(p.bias));
        p.gradients = reference::linear_backward(d, to_double(p.x), to_double(p.weight),
                                                 to_double(p.bias), to_double(p.dy));
        for (const auto& backend : backends()) {
          check_training(*backend, *backend->make(d), p);
          LinearDesc first = d;
          first.input_gradient = false;
          check_without_dx(*backend, *backend->make(first), p);
          LinearDesc inference = d;
          inference.training = false;
          check_inference(*backend, *backend->make(inference), p);
        }
      }
    }
  }
}

void check_pool(const Pool2dDesc& d, std::vector<float> x) {
  Promise p;
  p.name = text(d);
  p.x = std::move(x);
  p.dy = random_values(d.batch * d.out.elements(), 4);
  p.y = reference::pool(d, to_double(p.x));
  p.gradients.x = reference::pool_backward(d, to_double(p.x), to_double(p.dy));
  for (const auto& backend : backends()) {
    check_training(*backend, *backend->make(d), p);
    Pool2dDesc inference = d;
    inference.training = false;
    check_inference(*backend, *backend->make(inference), p);
  }
}

TEST_CASE("pooling agrees with the reference, ties and odd numbers too") {
  for (const Pool2dDesc& d : pool_cases()) {
    std::vector<float> x = random_values(d.batch * d.in.elements(), 1);
    check_pool(d, x);
    // Many values are equal: the first one of a window gets the gradient.
    for (float& v : x) v = std::floor(v * 2);
    check_pool(d, x);
  }
}

TEST_CASE("max pooling hands NaN and -inf on") {
  const Pool2dDesc d = pool_case(PoolKind::max, 1, {4, 4, 9}, {2, 2}, {2, 2});
  std::vector<float> x = random_values(d.in.elements(), 5);
  x[0] = x[9] = std::numeric_limits<float>::quiet_NaN();
  x[1] = std::numeric_limits<float>::quiet_NaN();
  for (std::size_t i : {20U, 29U, 56U, 65U}) x[i] = -std::numeric_limits<float>::infinity();
  check_pool(d, x);
}

TEST_CASE("a sum agrees with the reference, over any of its inputs too") {
  for (const bool relu : {false, true}) {
    for (const int inputs : {2, 3, kMaxInputs}) {
      SumDesc d;
      d.batch = 3;
      d.shape = {5, 7, 3};
      d.inputs = inputs;
      d.relu = relu;
      const std::int64_t count = d.batch * d.shape.elements();
      std::vector<float> all = random_values(inputs * count, 1);
      all[1] = std::numeric_limits<float>::quiet_NaN();
      all[2] = std::numeric_limits<float>::infinity();
      const std::vector<float> dy = random_values(count, 2);
      const reference::Values y = reference::sum(d, to_double(all));
      reference::Values dx = reference::sum_backward(d, to_double(all), to_double(dy));
      dx.resize(static_cast<std::size_t>(count));
      for (const auto& backend : backends()) {
        INFO(backend->info().name, ", ", inputs, " inputs");
        const auto op = backend->make(d);
        OpRunner runner(*backend, *op, all, {}, {}, count, inputs);
        check_close("y", runner.forward(), y);
        check_close("dx", runner.backward(dy).dx, dx);
        CHECK(op->passes_dy() == !relu);
        REQUIRE(op->in_place());
        for (int over = 0; over < inputs; ++over) {
          std::vector<OnDevice<float>> x;
          for (int k = 0; k < inputs; ++k) {
            x.emplace_back(*backend, std::vector<float>(all.begin() + k * count,
                                                        all.begin() + (k + 1) * count));
          }
          OpArgs args;
          args.x = x[0].ptr();
          for (int k = 1; k < inputs; ++k) {
            args.more_x[k - 1] = x[k].ptr();
          }
          args.y = x[over].ptr();
          op->forward(args);
          check_close("y in place", x[over].get(), y);
          OnDevice<float> gradient(*backend, dy);
          args.dx = args.dy = gradient.ptr();
          op->backward(args);
          check_close("dx in place", gradient.get(), dx);
        }
      }
    }
  }
}

TEST_CASE("ReLU agrees with the reference, in place too") {
  ReluDesc d;
  d.batch = 3;
  d.shape = {5, 7, 3};
  const std::int64_t count = d.batch * d.shape.elements();
  Promise p;
  p.name = "relu";
  p.x = random_values(count, 1);
  p.x[0] = 0.0F;
  p.x[1] = std::numeric_limits<float>::quiet_NaN();
  p.x[2] = std::numeric_limits<float>::infinity();
  p.dy = random_values(count, 2);
  p.y = reference::relu(to_double(p.x));
  p.gradients.x = reference::relu_backward(to_double(p.dy), p.y);
  for (const auto& backend : backends()) {
    const auto op = backend->make(d);
    check_training(*backend, *op, p);
    REQUIRE(op->in_place());
    OnDevice<float> x(*backend, p.x), dy(*backend, p.dy);
    OpArgs args;
    args.x = args.y = x.ptr();
    args.dx = args.dy = dy.ptr();
    op->forward(args);
    check_close("y in place", x.get(), p.y);
    op->backward(args);
    check_close("dx in place", dy.get(), p.gradients.x);
  }
}

}  // namespace
}  // namespace dpt::testing
