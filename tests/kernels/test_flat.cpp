// The flat kernels: PyTorch's optimizer formulas in double algebra, the gradient norm, and that
// wide and plain loops give the same bits.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/common/optimizer_math.h"
#include "kernels/cpu/flat.h"
#include "tests/support/op_runner.h"

namespace dpt::testing {
namespace {

/// torch.optim.SGD, Adam and AdamW for one parameter, as their documentation writes them.
struct Algebra {
  OptimizerDesc d;
  double param = 0, first = 0, second = 0, largest = 0;
  int t = 0;

  void step(double grad, double lr, double clip) {
    ++t;
    double g = grad * clip;
    if (d.maximize) g = -g;
    if (d.kind == OptimizerKind::sgd) {
      g += d.weight_decay * param;
      const double momentum = static_cast<double>(d.momentum);
      if (momentum != 0) {
        first = t == 1 ? g : momentum * first + (1 - static_cast<double>(d.dampening)) * g;
        g = d.nesterov ? g + momentum * first : first;
      }
      param -= lr * g;
      return;
    }
    if (d.kind == OptimizerKind::adamw) {
      param -= lr * d.weight_decay * param;
    } else {
      g += d.weight_decay * param;
    }
    first = d.beta1 * first + (1 - d.beta1) * g;
    second = d.beta2 * second + (1 - d.beta2) * g * g;
    const double mean = first / (1 - std::pow(d.beta1, t));
    double square = second;
    if (d.amsgrad) square = largest = std::max(largest, second);
    square /= 1 - std::pow(d.beta2, t);
    param -= lr * mean / (std::sqrt(square) + d.eps);
  }
};

StepScalars scalars(const OptimizerDesc& d, int t, double lr, float clip) {
  StepScalars s;
  s.lr = static_cast<float>(lr);
  s.step_size = static_cast<float>(lr / (1 - std::pow(d.beta1, t)));
  s.inverse_sqrt_bias2 = static_cast<float>(1 / std::sqrt(1 - std::pow(d.beta2, t)));
  s.first_step = t == 1 ? 1.0F : 0.0F;
  s.clip = clip;
  return s;
}

std::vector<OptimizerDesc> optimizers() {
  std::vector<OptimizerDesc> all(9);
  all[1].weight_decay = 0.01;
  all[2].momentum = 0.9F;
  all[3].momentum = 0.9F;
  all[3].dampening = 0.5F;
  all[3].weight_decay = 0.1;
  all[4].momentum = 0.75F;
  all[4].nesterov = true;
  all[4].maximize = true;
  all[5].kind = OptimizerKind::adam;
  all[6].kind = OptimizerKind::adam;
  all[6].weight_decay = 0.1;
  all[6].amsgrad = true;
  all[7].kind = OptimizerKind::adamw;
  all[7].weight_decay = 0.1;
  all[8] = all[7];
  all[8].amsgrad = true;
  all[8].maximize = true;
  all[8].beta1 = 0.5;
  all[8].eps = 1e-3;
  return all;
}

}  // namespace

TEST_CASE("Optimizer steps follow PyTorch's formulas") {
  const std::int64_t n = 37;  // Whole vectors and a tail.
  int which = 0;
  for (const OptimizerDesc& d : optimizers()) {
    INFO("optimizer ", which++);
    std::vector<float> params = random_values(n, 1);
    // States start as NaN where the first step must not read them.
    const float start = d.kind == OptimizerKind::sgd ? std::numeric_limits<float>::quiet_NaN() : 0;
    std::vector<float> s1(37, start), s2(37, 0.0F), s3(37, 0.0F);
    std::vector<Algebra> want(37);
    for (std::size_t i = 0; i < 37; ++i) {
      want[i].d = d;
      want[i].param = static_cast<double>(params[i]);
    }
    for (int t = 1; t <= 5; ++t) {
      const std::vector<float> grads = random_values(n, 10 + static_cast<std::uint64_t>(t));
      const float clip = t == 3 ? 0.25F : 1.0F;
      cpu_optimizer_step(d, params.data(), grads.data(), s1.data(), s2.data(), s3.data(),
                         scalars(d, t, 0.1, clip), n);
      for (std::size_t i = 0; i < 37; ++i) {
        want[i].step(static_cast<double>(grads[i]), 0.1, static_cast<double>(clip));
        CHECK(static_cast<double>(params[i]) == doctest::Approx(want[i].param).epsilon(1e-5));
      }
    }
  }
}

TEST_CASE("An optimizer's bits do not depend on where the vectors end") {
  for (const OptimizerDesc& d : optimizers()) {
    const std::vector<float> grads = random_values(64, 5);
    std::vector<float> p = random_values(64, 6), s1(64, 0.5F), s2(64, 0.25F), s3(64, 0.25F);
    std::vector<float> q = p, r1 = s1, r2 = s2, r3 = s3;
    const StepScalars now = scalars(d, 2, 0.1, 0.5F);
    cpu_optimizer_step(d, p.data(), grads.data(), s1.data(), s2.data(), s3.data(), now, 64);
    for (std::size_t i = 0; i < 64; ++i) {  // One element at a time: never a whole vector.
      cpu_optimizer_step(d, &q[i], &grads[i], &r1[i], &r2[i], &r3[i], now, 1);
    }
    CHECK(p == q);
    CHECK(s1 == r1);
    CHECK(s2 == r2);
    CHECK(s3 == r3);
  }
}

TEST_CASE("Amsgrad keeps a NaN") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  OptimizerDesc d;
  d.kind = OptimizerKind::adam;
  d.amsgrad = true;
  for (const std::int64_t n : {8, 1}) {  // The wide loop and the plain one.
    for (const bool in_state : {false, true}) {
      std::vector<float> p(8, 1.0F), g(8, in_state ? 1.0F : nan), m(8, 0.0F), s(8, 0.0F);
      std::vector<float> largest(8, in_state ? nan : 1.0F);
      cpu_optimizer_step(d, p.data(), g.data(), m.data(), s.data(), largest.data(),
                         scalars(d, 2, 0.1, 1.0F), n);
      CHECK(std::isnan(largest[0]));
      CHECK(std::isnan(p[0]));
    }
  }
}

TEST_CASE("The gradient norm is exact where double is, and clips as PyTorch does") {
  for (const std::int64_t n : {0, 1, 15, 16, 17, 1000, 4099}) {
    INFO("n = ", n);
    const std::vector<float> g = random_values(n, 3);
    double sum = 0;
    for (const float v : g) sum += static_cast<double>(v) * static_cast<double>(v);
    StepScalars s;
    cpu_grad_norm(g.data(), n, &s);
    CHECK(s.grad_norm == doctest::Approx(std::sqrt(sum)).epsilon(1e-7));
    CHECK(s.clip == 1.0F);
    s.max_norm = 0.5F;
    cpu_grad_norm(g.data(), n, &s);
    const double clip = std::min(1.0, 0.5 / (std::sqrt(sum) + 1e-6));
    CHECK(s.clip == doctest::Approx(clip).epsilon(1e-6));
    // The same partial sums, one element at a time: what a processor without wide loops does.
    double partial[16] = {};
    for (std::size_t i = 0; i < g.size(); ++i) {
      partial[i % 16] += static_cast<double>(g[i]) * static_cast<double>(g[i]);
    }
    for (int half = 8; half > 0; half /= 2) {
      for (int j = 0; j < half; ++j) partial[j] += partial[j + half];
    }
    CHECK(s.grad_norm == static_cast<float>(std::sqrt(partial[0])));
  }
  const std::vector<float> bad(20, std::numeric_limits<float>::quiet_NaN());
  StepScalars s;
  s.max_norm = 1;
  cpu_grad_norm(bad.data(), 20, &s);
  CHECK(std::isnan(s.clip));
}

TEST_CASE("Flat addition, also in place") {
  for (const std::size_t n : {0U, 1U, 8U, 29U}) {
    const std::vector<float> a = random_values(static_cast<std::int64_t>(n), 1);
    const std::vector<float> b = random_values(static_cast<std::int64_t>(n), 2);
    std::vector<float> to(n), in_place = a;
    cpu_add(to.data(), a.data(), b.data(), static_cast<std::int64_t>(n));
    cpu_add(in_place.data(), in_place.data(), b.data(), static_cast<std::int64_t>(n));
    for (std::size_t i = 0; i < n; ++i) CHECK(to[i] == a[i] + b[i]);
    CHECK(to == in_place);
  }
}

}  // namespace dpt::testing
