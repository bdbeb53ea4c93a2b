// The flat kernels on every backend: PyTorch's optimizer formulas in double algebra, the gradient
// norm, sums, rounding, and that wide and plain loops, and all backends, give the same bits.
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "kernels/common/bf16.h"
#include "kernels/common/optimizer_math.h"
#include "kernels/devices.h"
#include "tests/support/backends.h"
#include "tests/support/close.h"
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

/// Calls use(backend) for every backend.
void on_backends(const std::function<void(Backend&)>& use) {
  for (const std::string& name : backend_names()) {
    INFO(name);
    use(*make_backend(parse_device(name)));
  }
}

/// Parameters with all states on a device.
class Training {
 public:
  Training(Backend& backend, const std::vector<float>& params, float s1, float s2, float s3)
      : backend_(backend),
        count_(params.size()),
        params_(backend, params),
        grads_(backend, params),
        states_{OnDevice<float>(backend, std::vector<float>(count_, s1)),
                OnDevice<float>(backend, std::vector<float>(count_, s2)),
                OnDevice<float>(backend, std::vector<float>(count_, s3))},
        params16_(backend, std::vector<std::uint16_t>(count_)),
        scalars_(backend, {StepScalars{}}),
        metrics_(backend, {StepMetrics{}}),
        guard_(backend, {UpdateGuard{}}) {}

  /// Updates elements [first, first + count).
  void step(const OptimizerDesc& desc, const std::vector<float>& grads, const StepScalars& now,
            std::size_t first, std::size_t count, bool guarded = false) {
    grads_.set(grads);
    scalars_.set({now});
    const std::size_t bytes = first * sizeof(float);
    OptimizerArgs args;
    args.params = params_.ptr() + bytes;
    args.grads = grads_.ptr() + bytes;
    args.state1 = states_[0].ptr() + bytes;
    args.state2 = states_[1].ptr() + bytes;
    args.state3 = states_[2].ptr() + bytes;
    args.params16 = params16_.ptr() + bytes / 2;
    args.scalars = scalars_.ptr();
    args.count = static_cast<std::int64_t>(count);
    if (guarded) {
      args.metrics = metrics_.ptr();
      args.guard = guard_.ptr();
    }
    backend_.optimizer_step(desc, args);
  }
  void guarded_step(const OptimizerDesc& desc, const std::vector<float>& grads,
                    const StepScalars& now, const StepMetrics& metrics) {
    metrics_.set({metrics});
    step(desc, grads, now, 0, count_, true);
  }
  void clear_guard() { guard_.set({UpdateGuard{}}); }
  StepMetrics metrics() const { return metrics_.get()[0]; }
  std::int64_t bad_step() const { return guard_.get()[0].bad_step; }
  void step(const OptimizerDesc& desc, const std::vector<float>& grads, const StepScalars& now) {
    step(desc, grads, now, 0, count_);
  }

  std::vector<float> params() const { return params_.get(); }
  std::vector<float> state(std::size_t which) const { return states_[which].get(); }
  std::vector<std::uint16_t> params16() const { return params16_.get(); }

 private:
  Backend& backend_;
  std::size_t count_;
  OnDevice<float> params_, grads_;
  std::array<OnDevice<float>, 3> states_;
  OnDevice<std::uint16_t> params16_;
  OnDevice<StepScalars> scalars_;
  OnDevice<StepMetrics> metrics_;
  OnDevice<UpdateGuard> guard_;
};

std::vector<std::uint16_t> rounded(const std::vector<float>& values) {
  std::vector<std::uint16_t> result;
  for (const float value : values) result.push_back(to_bf16(value).bits);
  return result;
}

}  // namespace

TEST_CASE("Optimizer steps follow PyTorch's formulas") {
  constexpr std::int64_t kCount = 37;  // Whole vectors and a tail.
  int which = 0;
  for (const OptimizerDesc& d : optimizers()) {
    INFO("optimizer ", which++);
    const std::vector<float> start = random_values(kCount, 1);
    std::vector<std::vector<float>> results;
    on_backends([&](Backend& backend) {
      // States start as NaN where the first step must not read them.
      const float s1 = d.kind == OptimizerKind::sgd ? std::numeric_limits<float>::quiet_NaN() : 0;
      Training training(backend, start, s1, 0, 0);
      std::vector<Algebra> want(kCount);
      for (std::size_t i = 0; i < kCount; ++i) {
        want[i].d = d;
        want[i].param = static_cast<double>(start[i]);
      }
      for (int t = 1; t <= 5; ++t) {
        const std::vector<float> grads = random_values(kCount, 10 + static_cast<std::uint64_t>(t));
        const float clip = t == 3 ? 0.25F : 1.0F;
        training.step(d, grads, scalars(d, t, 0.1, clip));
        const std::vector<float> params = training.params();
        for (std::size_t i = 0; i < kCount; ++i) {
          want[i].step(static_cast<double>(grads[i]), 0.1, static_cast<double>(clip));
          CHECK(static_cast<double>(params[i]) == doctest::Approx(want[i].param).epsilon(1e-5));
        }
        CHECK(training.params16() == rounded(params));
      }
      results.push_back(training.params());
      CHECK(same_bits(results.back(), results.front()));  // All backends agree.
    });
  }
}

TEST_CASE("An optimizer's bits do not depend on where the vectors end") {
  for (const OptimizerDesc& d : optimizers()) {
    on_backends([&](Backend& backend) {
      const std::vector<float> grads = random_values(64, 5), start = random_values(64, 6);
      const StepScalars now = scalars(d, 2, 0.1, 0.5F);
      Training whole(backend, start, 0.5F, 0.25F, 0.25F);
      whole.step(d, grads, now);
      Training single(backend, start, 0.5F, 0.25F, 0.25F);
      // One element at a time: never a whole vector, at every alignment.
      for (std::size_t i = 0; i < 64; ++i) single.step(d, grads, now, i, 1);
      CHECK(same_bits(whole.params(), single.params()));
      CHECK(whole.params16() == single.params16());
      for (const std::size_t state : {0U, 1U, 2U}) {
        CHECK(same_bits(whole.state(state), single.state(state)));
      }
    });
  }
}

TEST_CASE("A guarded update is refused, broken or withheld, and says so") {
  constexpr std::size_t kCount = 37;  // Whole vectors and a tail.
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  for (const OptimizerDesc& d : optimizers()) {
    on_backends([&](Backend& backend) {
      const std::vector<float> start = random_values(kCount, 1), good = random_values(kCount, 2);
      Training training(backend, start, 0.5F, 0.25F, 0.25F);
      StepScalars now = scalars(d, 2, 0.1, 1.0F);
      now.step = 7;
      now.grad_norm = 3;
      const auto outcome_is = [&](UpdateOutcome outcome, std::int64_t bad_step) {
        const StepMetrics metrics = training.metrics();
        CHECK(metrics.outcome == static_cast<float>(outcome));
        CHECK(metrics.bad_norm == (outcome == UpdateOutcome::applied ? 0.0F : 3.0F));
        CHECK(training.bad_step() == bad_step);
      };
      const auto unchanged = [&](const std::vector<float>& params) {
        CHECK(same_bits(training.params(), params));
        CHECK(training.params16() == std::vector<std::uint16_t>(kCount));
        CHECK(same_bits(training.state(0), std::vector<float>(kCount, 0.5F)));
        CHECK(same_bits(training.state(1), std::vector<float>(kCount, 0.25F)));
      };
      // What is known before the update: a loss, or a gradient that grad_norm has looked at.
      for (const float loss : {nan, infinity, -infinity}) {
        training.guarded_step(d, good, now, {.loss_sum = loss});
        outcome_is(UpdateOutcome::refused, 7);
        unchanged(start);
        training.clear_guard();
      }
      StepScalars known = now;
      known.finite = 0;
      training.guarded_step(d, good, known, {.loss_sum = 1});
      outcome_is(UpdateOutcome::refused, 7);
      // The steps after it are withheld, until the host has said otherwise.
      now.step = 8;
      training.guarded_step(d, good, now, {.loss_sum = 1});
      outcome_is(UpdateOutcome::withheld, 7);
      unchanged(start);
      training.clear_guard();
      training.guarded_step(d, good, now, {.loss_sum = 1});
      outcome_is(UpdateOutcome::applied, 0);
      CHECK_FALSE(same_bits(training.params(), start));
      // What only the update notices, in whole vectors and in the tail.
      for (const std::size_t at : {std::size_t{3}, kCount - 1}) {
        for (const float value : {nan, infinity, -infinity}) {
          Training fresh(backend, start, 0.5F, 0.25F, 0.25F);
          std::vector<float> bad = good;
          bad[at] = value;
          fresh.guarded_step(d, bad, now, {.loss_sum = 1});
          CHECK(fresh.metrics().outcome == static_cast<float>(UpdateOutcome::broken));
          CHECK(fresh.bad_step() == 8);
          now.step = 9;
          const std::vector<float> broken = fresh.params();
          fresh.guarded_step(d, good, now, {.loss_sum = 1});
          CHECK(fresh.metrics().outcome == static_cast<float>(UpdateOutcome::withheld));
          CHECK(same_bits(fresh.params(), broken));
          now.step = 8;
        }
      }
    });
  }
}

TEST_CASE("An update that overflows the second moment alone is broken") {
  // Adam divides by it: the weight would stay where it is for ever, and look well.
  OptimizerDesc d;
  d.kind = OptimizerKind::adam;
  on_backends([&](Backend& backend) {
    for (const std::size_t at : {0U, 36U}) {
      const std::vector<float> start(37, 1.0F);
      Training training(backend, start, 0, 0, 0);
      std::vector<float> grads(37, 0.0F);
      grads[at] = 1e25F;
      StepScalars now = scalars(d, 1, 0.1, 1.0F);
      now.step = 1;
      training.guarded_step(d, grads, now, {.loss_sum = 1});
      CHECK(std::isfinite(training.params()[at]));
      CHECK(training.metrics().outcome == static_cast<float>(UpdateOutcome::broken));
    }
  });
}

TEST_CASE("Amsgrad keeps a NaN") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  OptimizerDesc d;
  d.kind = OptimizerKind::adam;
  d.amsgrad = true;
  on_backends([&](Backend& backend) {
    for (const std::size_t n : {8U, 1U}) {  // The wide loop and the plain one.
      for (const bool in_state : {false, true}) {
        Training training(backend, std::vector<float>(8, 1.0F), 0, 0, in_state ? nan : 1.0F);
        training.step(d, std::vector<float>(8, in_state ? 1.0F : nan), scalars(d, 2, 0.1, 1.0F), 0,
                      n);
        CHECK(std::isnan(training.state(2)[0]));
        CHECK(std::isnan(training.params()[0]));
      }
    }
  });
}

TEST_CASE("The gradient norm is exact where double is, and clips as PyTorch does") {
  const auto norm_of = [](Backend& backend, const std::vector<float>& g, float max_norm,
                          std::size_t first = 0) {
    const OnDevice<float> grads(backend, g);
    StepScalars before;
    before.lr = 3;
    before.max_norm = max_norm;
    before.grad_norm = before.clip = -1;
    const OnDevice<StepScalars> s(backend, {before});
    backend.grad_norm(grads.ptr() + first * sizeof(float),
                      static_cast<std::int64_t>(g.size() - first), s.ptr());
    const StepScalars after = s.get()[0];
    CHECK(after.lr == 3);
    CHECK(after.max_norm == max_norm);
    return after;
  };
  on_backends([&](Backend& backend) {
    for (const std::int64_t n : {0, 1, 15, 16, 17, 1000, 4099, 70001}) {
      INFO("n = ", n);
      const std::vector<float> g = random_values(n, 3);
      double sum = 0;
      for (const float v : g) sum += static_cast<double>(v) * static_cast<double>(v);
      // The sum errs by less than n * 2^-53 of itself in any order, and is rounded to float once.
      const double norm = std::sqrt(sum);
      const StepScalars plain = norm_of(backend, g, 0);
      CHECK(static_cast<double>(plain.grad_norm) == doctest::Approx(norm).epsilon(1e-7));
      CHECK(plain.clip == 1.0F);
      const StepScalars clipped = norm_of(backend, g, 0.5F);
      CHECK(clipped.grad_norm == plain.grad_norm);
      const double clip = std::min(1.0, 0.5 / (norm + 1e-6));
      CHECK(static_cast<double>(clipped.clip) == doctest::Approx(clip).epsilon(1e-6));
      if (n < 2) continue;
      const double rest = std::sqrt(sum - static_cast<double>(g[0]) * static_cast<double>(g[0]));
      CHECK(static_cast<double>(norm_of(backend, g, 0, 1).grad_norm) ==
            doctest::Approx(rest).epsilon(1e-7));
    }
    const std::vector<float> bad(20, std::numeric_limits<float>::quiet_NaN());
    CHECK(std::isnan(norm_of(backend, bad, 1).clip));
    // `finite` tells NaN and infinity from a norm that is only large.
    CHECK(norm_of(backend, bad, 1).finite == 0);
    std::vector<float> large(20, 3e38F);
    CHECK(norm_of(backend, large, 0).finite == 1);
    large[19] = -std::numeric_limits<float>::infinity();
    CHECK(norm_of(backend, large, 0).finite == 0);
  });
}

TEST_CASE("The CPU's gradient norm has the same bits on every processor") {
  const auto backend = make_cpu_backend(1);
  for (const std::int64_t n : {1, 15, 16, 17, 1000, 4099}) {
    const std::vector<float> g = random_values(n, 3);
    const OnDevice<float> grads(*backend, g);
    const OnDevice<StepScalars> s(*backend, {StepScalars{}});
    backend->grad_norm(grads.ptr(), n, s.ptr());
    // The same partial sums, one element at a time: what a processor without wide loops does.
    double partial[16] = {};
    for (std::size_t i = 0; i < g.size(); ++i) {
      partial[i % 16] += static_cast<double>(g[i]) * static_cast<double>(g[i]);
    }
    for (int half = 8; half > 0; half /= 2) {
      for (int j = 0; j < half; ++j) partial[j] += partial[j + half];
    }
    CHECK(s.get()[0].grad_norm == static_cast<float>(std::sqrt(partial[0])));
  }
}

TEST_CASE("Flat addition, also in place and at odd addresses") {
  on_backends([](Backend& backend) {
    for (const std::size_t n : {0U, 1U, 8U, 29U, 5000U}) {
      for (const std::size_t skip : {0U, 1U}) {
        if (skip > n) continue;
        const std::vector<float> a = random_values(static_cast<std::int64_t>(n), 1);
        const std::vector<float> b = random_values(static_cast<std::int64_t>(n), 2);
        std::vector<float> want = a;
        for (std::size_t i = skip; i < n; ++i) want[i] = a[i] + b[i];
        const OnDevice<float> left(backend, a), right(backend, b), to(backend, a);
        const std::size_t bytes = skip * sizeof(float);
        const auto count = static_cast<std::int64_t>(n - skip);
        backend.add(to.ptr() + bytes, left.ptr() + bytes, right.ptr() + bytes, count);
        CHECK(same_bits(to.get(), want));
        backend.add(right.ptr() + bytes, left.ptr() + bytes, right.ptr() + bytes, count);
        backend.add(left.ptr() + bytes, left.ptr() + bytes, to.ptr() + bytes, 0);
        std::vector<float> in_place = b;
        std::copy(want.begin() + static_cast<std::ptrdiff_t>(skip), want.end(),
                  in_place.begin() + static_cast<std::ptrdiff_t>(skip));
        CHECK(same_bits(right.get(), in_place));
        CHECK(same_bits(left.get(), a));
      }
    }
  });
}

TEST_CASE("A tree sum adds in the order given, and writes every output") {
  // More parts and more additions than one kernel of a GPU takes, too.
  for (const int parts : {1, 2, 3, 7, 32, 33, 70}) {
    for (const std::size_t n : {0U, 1U, 37U, 4099U}) {
      for (const std::size_t skip : {0U, 1U}) {
        if (skip > n) continue;
        INFO(parts, " parts of ", n, ", without ", skip);
        std::vector<std::vector<float>> values;
        for (int p = 0; p < parts; ++p) {
          values.push_back(random_values(static_cast<std::int64_t>(n), 20 + p));
        }
        // A clipped binary tree; then something no tree does: a part used twice.
        std::vector<TreeAdd> additions;
        for (int step = 1; step < parts; step *= 2) {
          for (int left = 0; left + step < parts; left += 2 * step) {
            additions.push_back({left, left + step});
          }
        }
        if (parts > 2) additions.push_back({0, 2});
        std::vector<std::vector<float>> sums = values;
        for (const TreeAdd& add : additions) {
          for (std::size_t i = skip; i < n; ++i) {
            sums[static_cast<std::size_t>(add.left)][i] +=
                sums[static_cast<std::size_t>(add.right)][i];
          }
        }
        on_backends([&](Backend& backend) {
          std::vector<OnDevice<float>> memory;
          for (const std::vector<float>& each : values) memory.emplace_back(backend, each);
          const OnDevice<float> out(backend, values[0]), other(backend, values[0]);
          std::vector<DevPtr> addresses;
          for (const OnDevice<float>& each : memory) {
            addresses.push_back(each.ptr() + skip * sizeof(float));
          }
          const DevPtr outs[] = {out.ptr() + skip * sizeof(float), addresses[0],
                                 other.ptr() + skip * sizeof(float)};
          backend.tree_sum(addresses, additions, outs, static_cast<std::int64_t>(n - skip));
          CHECK(same_bits(out.get(), sums[0]));
          CHECK(same_bits(other.get(), sums[0]));
          CHECK(same_bits(memory[0].get(), sums[0]));
        });
      }
    }
  }
}

TEST_CASE("Rounding to bf16 goes to the nearest, ties to even, and keeps what is no number") {
  const float inf = std::numeric_limits<float>::infinity();
  // 1 + 2^-7 is the first bf16 above 1.
  std::vector<float> values = {0.0F,
                               -0.0F,
                               1.0F,
                               1.0F + 0x1p-8F,
                               1.0F + 0x3p-8F,
                               1.0F + 0x1.8p-8F,
                               std::numeric_limits<float>::max(),
                               -inf,
                               0x1p-149F,
                               -3.1415927F};
  const std::vector<float> want = {0.0F,           -0.0F, 1.0F, 1.0F, 1.0F + 0x1p-6F,
                                   1.0F + 0x1p-7F, inf,   -inf, 0.0F, -3.140625F};
  const std::vector<float> more = random_values(3001, 1);
  std::vector<float> all = values;
  all.insert(all.end(), more.begin(), more.end());
  all.push_back(std::numeric_limits<float>::quiet_NaN());
  on_backends([&](Backend& backend) {
    for (const std::size_t skip : {0U, 1U}) {
      const OnDevice<float> from(backend, all);
      const OnDevice<Bf16> to(backend, std::vector<Bf16>(all.size()));
      backend.to_bf16(to.ptr() + skip * 2, from.ptr() + skip * 4,
                      static_cast<std::int64_t>(all.size() - skip));
      const std::vector<Bf16> got = to.get();
      for (std::size_t i = skip; i < want.size(); ++i) {
        CHECK(std::memcmp(&want[i], std::vector<float>{to_float(got[i])}.data(), 4) == 0);
      }
      for (std::size_t i = want.size(); i < all.size() - 1; ++i) {
        // Half of a step: 8 bits of mantissa, the leading one among them.
        CHECK(std::abs(to_float(got[i]) - all[i]) <= 0x1p-8F * std::abs(to_float(got[i])));
      }
      CHECK(std::isnan(to_float(got.back())));
    }
  });
}

}  // namespace dpt::testing
