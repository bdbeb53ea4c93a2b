// Tests the reference itself: its gradients against differences of its own forward pass, in double
// precision.
#include "kernels/reference/reference.h"

#include <doctest/doctest.h>

#include <functional>

#include "tests/kernels/cases.h"
#include "tests/support/op_runner.h"

namespace dpt::testing {
namespace {

using reference::Values;

/// Checks `gradient` of sum(dy * f(x)) with respect to x by central differences. The inputs are
/// random, so that none lies within `step` of a kink (ReLU at 0, ties in a max pool).
void check_gradient(const std::string& what, const std::function<Values(const Values&)>& f,
                    const Values& x, const Values& dy, const Values& gradient) {
  INFO(what);
  constexpr double kStep = 1e-6;
  REQUIRE(gradient.size() == x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    Values above = x, below = x;
    above[i] += kStep;
    below[i] -= kStep;
    const Values y_above = f(above), y_below = f(below);
    REQUIRE(y_above.size() == dy.size());
    double slope = 0;
    for (std::size_t k = 0; k < dy.size(); ++k) slope += dy[k] * (y_above[k] - y_below[k]);
    slope /= 2 * kStep;
    if (std::abs(slope - gradient[i]) < 1e-7 * (1 + std::abs(slope))) continue;
    INFO("element ", i);
    CHECK(gradient[i] == doctest::Approx(slope).epsilon(1e-7));
    return;
  }
}

Values random_doubles(std::int64_t count, std::uint64_t seed) {
  return to_double(random_values(count, seed));
}

TEST_CASE("the reference's convolution gradients are the slopes of its forward pass") {
  const Conv2dDesc plain = conv_case(2, {5, 4, 4}, 6, {3, 2}, {2, 1}, {1, 1}, {1, 2}, 2);
  Conv2dDesc relu = plain;
  relu.relu = true;
  for (const Conv2dDesc& d : {plain, relu, with_pool(relu, PoolKind::max, {2, 2}, {1, 1}, {1, 1}),
                              with_pool(relu, PoolKind::average, {2, 2}, {2, 2}, {1, 0}),
                              with_pool(plain, PoolKind::max, {2, 2}, {2, 2})}) {
    const Values x = random_doubles(d.batch * d.in.elements(), 1);
    const Values weight = random_doubles(weight_count(d), 2);
    const Values bias = random_doubles(d.conv_out.c, 3);
    const Values dy = random_doubles(d.batch * d.out.elements(), 4);
    const auto g = reference::conv2d_backward(d, x, weight, bias, dy);
    check_gradient(
        text(d) + " x", [&](const Values& v) { return reference::conv2d(d, v, weight, bias); }, x,
        dy, g.x);
    check_gradient(
        text(d) + " weight", [&](const Values& v) { return reference::conv2d(d, x, v, bias); },
        weight, dy, g.weight);
    check_gradient(
        text(d) + " bias", [&](const Values& v) { return reference::conv2d(d, x, weight, v); },
        bias, dy, g.bias);
  }
}

TEST_CASE("the reference's pooling gradients are the slopes of its forward pass") {
  for (const Pool2dDesc& d : pool_cases()) {
    if (d.batch * d.in.elements() > 1000) continue;
    const Values x = random_doubles(d.batch * d.in.elements(), 1);
    const Values dy = random_doubles(d.batch * d.out.elements(), 4);
    // A window that holds only padding gives -inf, which has no slope.
    const Values y = reference::pool(d, x);
    if (!std::isfinite(*std::min_element(y.begin(), y.end()))) continue;
    check_gradient(
        text(d), [&](const Values& v) { return reference::pool(d, v); }, x, dy,
        reference::pool_backward(d, x, dy));
  }
}

TEST_CASE("the reference's cross-entropy gradient is the slope of its loss") {
  for (const float smoothing : {0.0F, 0.25F}) {
    CrossEntropyDesc d;
    d.batch = 3;
    d.classes = 5;
    d.label_smoothing = smoothing;
    const std::vector<std::int32_t> labels = {0, 4, 2};
    const Values x = random_doubles(d.batch * d.classes, 1);
    const auto loss = [&](const Values& v) {
      return reference::cross_entropy(d, v, labels, 1).sample_loss;
    };
    check_gradient("cross-entropy", loss, x, Values(3, 0.5),
                   reference::cross_entropy(d, x, labels, 0.5).gradient);
  }
}

// Computed by hand: AvgPool2d(3, 2, padding=1, ceil_mode=True) over 0 .. 35 as 6x6.
TEST_CASE("the reference's average pooling counts padding but no ceil_mode overhang") {
  Pool2dDesc d = pool_case(PoolKind::average, 1, {6, 6, 1}, {3, 3}, {2, 2}, {1, 1});
  d.out = {4, 4, 1};
  Values x(36);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i);
  const Values y = reference::pool(d, x);
  CHECK(y[0] == doctest::Approx(14.0 / 9));   // 0 + 1 + 6 + 7 over 3x3
  CHECK(y[5] == doctest::Approx(14.0));       // a full window
  CHECK(y[15] == doctest::Approx(35.0 / 4));  // the corner: one element, 2x2 with padding
}

}  // namespace
}  // namespace dpt::testing
