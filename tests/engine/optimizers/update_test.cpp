// The loops over flat buffers, with every formula on every backend: bits, ranges, groups, and
// non-finite values.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "kernels/common/bf16.h"
#include "kernels/devices.h"
#include "tests/engine/optimizers/golden.h"
#include "tests/support/close.h"

namespace dpt::testing {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
/// Optimizer states as they may be in the middle of a run.
const std::vector<float> kStates(kMaxOptimizerStates, 0.25F);

void on_backends(const std::function<void(Backend&)>& use) {
  for (const std::string& name : backend_names()) {
    INFO(name);
    use(*make_backend(parse_device(name)));
  }
}

std::vector<std::uint16_t> rounded(const std::vector<float>& values) {
  std::vector<std::uint16_t> result;
  for (const float value : values) result.push_back(to_bf16(value).bits);
  return result;
}

OptimizerSpec optimizer(const std::string& type, const char* options) {
  return make_optimizer(
      json_variant(optimizer_kinds().table(), type, nlohmann::json::parse(options)));
}

}  // namespace

TEST_CASE("an optimizer's bits do not depend on where the vectors end") {
  for (const GoldenCase& golden : golden_cases()) {
    CAPTURE(golden.name);
    if (golden.spec.is_layerwise) continue;
    on_backends([&](Backend& backend) {
      const std::vector<float> grads = random_values(64, 5), start = random_values(64, 6);
      Training whole(backend, golden.spec, start, kStates);
      whole.step(grads, 2, 0.1, 0.5F);
      CHECK(whole.params16() == rounded(whole.params()));
      // One element at a time: never a whole vector, at every alignment.
      std::vector<UpdateRange> ranges;
      for (std::int64_t i = 0; i < 64; ++i) ranges.push_back({i, 1, 0});
      Training single(backend, golden.spec, ranges, start, kStates);
      single.step(grads, 2, 0.1, 0.5F);
      CHECK(same_bits(whole.params(), single.params()));
      CHECK(whole.params16() == single.params16());
      for (std::size_t state = 0; state < whole.state_count(); ++state) {
        CHECK(same_bits(whole.state(state), single.state(state)));
      }
    });
  }
}

TEST_CASE("ranges: each with the constants of its group, and nothing else is touched") {
  const OptimizerSpec spec = optimizer("SGD", R"({"momentum": 0.5})");
  on_backends([&](Backend& backend) {
    // More than a tile of a GPU's kernel, and more than one block of tiles.
    constexpr std::size_t kCount = 30000;
    const std::vector<float> start(kCount, 1.0F), grads(kCount, 1.0F);
    Training training(backend, spec, {{16, 20000, 1}, {20032, 5, 0}, {29999, 1, 2}}, start,
                      kStates);
    training.step(grads, 1, {{0.5, 0}, {0.25, 0}, {0.125, 1}});
    const std::vector<float> params = training.params(), momentum = training.state(0);
    const std::vector<std::uint16_t> halves = training.params16();
    for (std::size_t i = 0; i < kCount; ++i) {
      const float want = i >= 16 && i < 20016      ? 0.75F
                         : i >= 20032 && i < 20037 ? 0.5F
                         : i == 29999              ? 0.75F
                                                   : 1.0F;
      if (params[i] != want) FAIL_CHECK("params[", i, "] = ", params[i], ", not ", want);
      const float kept = i == 29999 ? 2.0F : want == 1.0F ? 0.25F : 1.0F;
      if (momentum[i] != kept) FAIL_CHECK("state[", i, "] = ", momentum[i], ", not ", kept);
      const std::uint16_t half = want == 1.0F ? 0 : to_bf16(want).bits;
      if (halves[i] != half) FAIL_CHECK("params16[", i, "]");
    }
  });
}

TEST_CASE("a layer-wise update depends on its own range only, wherever that lies") {
  constexpr std::int64_t kCount = 20001;  // tiles of a GPU's kernel, whole vectors and a tail
  const std::vector<float> start = random_values(kCount, 1), grads = random_values(kCount, 2);
  for (const char* type : {"LARS", "LAMB"}) {
    CAPTURE(type);
    const OptimizerSpec spec = optimizer(type, R"({"lr": 0.5, "weight_decay": 0.25})");
    REQUIRE(spec.is_layerwise);
    on_backends([&](Backend& backend) {
      Training alone(backend, spec, start);
      alone.step(grads, 1, 0.5);
      const std::vector<float> want = alone.params();
      CHECK_FALSE(same_bits(want, start));
      // The range is between two others, one of which has several tiles too.
      for (const std::int64_t begin : {16, 9008}) {
        std::vector<float> params(static_cast<std::size_t>(begin), 3.0F), gradients = params;
        for (const auto& [all, own] : {std::pair(&params, &start), std::pair(&gradients, &grads)}) {
          all->insert(all->end(), own->begin(), own->end());
          all->resize(all->size() + 50, 7.0F);
        }
        const std::vector<UpdateRange> ranges = {
            {0, begin - 3, 0}, {begin, kCount, 0}, {begin + kCount + 15, 20, 0}};
        Training among(backend, spec, ranges, params);
        among.step(gradients, 1, 0.5);
        const std::vector<float> got = among.params();
        const auto first = got.begin() + begin;
        CHECK(same_bits(std::vector<float>(first, first + kCount), want));
      }
    });
  }
}

TEST_CASE("LARS and LAMB scale by the norms of the whole parameter") {
  constexpr std::int64_t kCount = 20001;
  const std::vector<float> start = random_values(kCount, 1), grads = random_values(kCount, 2);
  const OptimizerSpec lars =
      optimizer("LARS", R"({"weight_decay": 0.25, "trust_coefficient": 0.5, "eps": 0})");
  const OptimizerSpec lamb = optimizer("LAMB", R"({"weight_decay": 0, "eps": 0})");
  double w = 0, g = 0, u = 0;
  for (std::size_t i = 0; i < start.size(); ++i) {
    w += static_cast<double>(start[i]) * static_cast<double>(start[i]);
    g += static_cast<double>(grads[i]) * static_cast<double>(grads[i]);
    u += grads[i] != 0 ? 1 : 0;  // the first update of Adam is the gradient's sign
  }
  w = std::sqrt(w);
  g = std::sqrt(g);
  u = std::sqrt(u);
  on_backends([&](Backend& backend) {
    Training first(backend, lars, start), second(backend, lamb, start);
    first.step(grads, 1, 0.1);
    second.step(grads, 1, 0.1);
    const std::vector<float> after_lars = first.params(), after_lamb = second.params();
    for (const std::size_t i : {std::size_t{0}, std::size_t{8191}, std::size_t{20000}}) {
      const double p = static_cast<double>(start[i]), d = static_cast<double>(grads[i]);
      CHECK(static_cast<double>(after_lars[i]) ==
            doctest::Approx(p - 0.1 * 0.5 * w / (g + 0.25 * w) * (d + 0.25 * p)).epsilon(1e-5));
      CHECK(static_cast<double>(after_lamb[i]) ==
            doctest::Approx(p - 0.1 * w / u * (d > 0 ? 1 : -1)).epsilon(1e-4));
    }
  });
}

TEST_CASE("a parameter of zeros, and one without a gradient, are updated without norms") {
  on_backends([&](Backend& backend) {
    for (const char* type : {"LARS", "LAMB"}) {
      const OptimizerSpec spec = optimizer(type, "{}");
      Training training(backend, spec, {{0, 16, 0}, {16, 16, 0}}, std::vector<float>(32, 0.0F));
      std::vector<float> grads(32, 1.0F);
      std::fill(grads.begin() + 16, grads.end(), 0.0F);
      training.step(grads, 1, 0.5);
      CHECK(training.params()[0] == doctest::Approx(-0.5).epsilon(1e-5));
      CHECK(training.params()[31] == 0);
    }
  });
}

TEST_CASE("an optimizer without ranges changes nothing") {
  const OptimizerSpec spec = optimizer("Adam", "{}");
  on_backends([&](Backend& backend) {
    const std::vector<float> start = random_values(20, 1);
    for (const std::vector<UpdateRange>& ranges :
         {std::vector<UpdateRange>{}, std::vector<UpdateRange>{{3, 0, 0}}}) {
      Training training(backend, spec, ranges, start);
      training.step(start, 1, 0.1);
      CHECK(same_bits(training.params(), start));
    }
  });
}

TEST_CASE("SGD's first update does not read the momentum buffer") {
  const OptimizerSpec spec = optimizer("SGD", R"({"momentum": 0.5, "dampening": 0.5})");
  on_backends([&](Backend& backend) {
    const std::vector<float> start(37, 1.0F), grads(37, 0.5F);
    Training training(backend, spec, start, {kNan});
    training.step(grads, 1, 1.0);
    CHECK(same_bits(training.params(), grads));
    CHECK(same_bits(training.state(0), grads));
  });
}

TEST_CASE("a guarded update is refused, broken or withheld, and says so") {
  constexpr std::size_t kCount = 37;  // Whole vectors and a tail.
  for (const GoldenCase& golden : golden_cases()) {
    CAPTURE(golden.name);
    on_backends([&](Backend& backend) {
      const std::vector<float> start = random_values(kCount, 1), good = random_values(kCount, 2);
      Training training(backend, golden.spec, start, kStates);
      StepScalars now;
      now.step = 7;
      now.grad_norm = 3;
      StepMetrics metrics;
      const auto step = [&](Training& of, const std::vector<float>& grads, float loss) {
        metrics.loss_sum = loss;
        of.guarded_step(grads, 2, 0.1, now, metrics);
      };
      const auto outcome_is = [&](UpdateOutcome outcome, std::int64_t bad_step) {
        const StepMetrics after = training.metrics();
        CHECK(after.outcome == static_cast<float>(outcome));
        CHECK(after.bad_norm == (outcome == UpdateOutcome::applied ? 0.0F : 3.0F));
        CHECK(training.bad_step() == bad_step);
      };
      const auto unchanged = [&] {
        CHECK(same_bits(training.params(), start));
        CHECK(training.params16() == std::vector<std::uint16_t>(kCount));
        for (std::size_t s = 0; s < training.state_count(); ++s) {
          CHECK(same_bits(training.state(s), std::vector<float>(kCount, 0.25F)));
        }
      };
      // Steps that are known to be bad before the update: by a loss, a sum of weights, running
      // statistics, or a gradient that grad_norm has checked.
      metrics.weight = kInfinity;
      step(training, good, 1);
      outcome_is(UpdateOutcome::refused, 7);
      metrics.weight = 0;
      training.clear_guard();
      metrics.bad_statistic = StepMetrics::kFirstStatistic;
      step(training, good, 1);
      outcome_is(UpdateOutcome::refused, 7);
      metrics.bad_statistic = 0;
      unchanged();
      training.clear_guard();
      for (const float loss : {kNan, kInfinity, -kInfinity}) {
        step(training, good, loss);
        outcome_is(UpdateOutcome::refused, 7);
        unchanged();
        training.clear_guard();
      }
      now.finite = 0;
      step(training, good, 1);
      outcome_is(UpdateOutcome::refused, 7);
      now.finite = 1;
      // The following steps are withheld until the host clears the guard.
      now.step = 8;
      step(training, good, 1);
      outcome_is(UpdateOutcome::withheld, 7);
      unchanged();
      training.clear_guard();
      step(training, good, 1);
      outcome_is(UpdateOutcome::applied, 0);
      CHECK_FALSE(same_bits(training.params(), start));
      // Values that only the update detects, in whole vectors and in the tail.
      for (const std::size_t at : {std::size_t{3}, kCount - 1}) {
        for (const float value : {kNan, kInfinity}) {
          Training fresh(backend, golden.spec, start, kStates);
          std::vector<float> bad = good;
          bad[at] = value;
          step(fresh, bad, 1);
          CHECK(fresh.metrics().outcome == static_cast<float>(UpdateOutcome::broken));
          CHECK(fresh.bad_step() == 8);
          now.step = 9;
          const std::vector<float> broken = fresh.params();
          step(fresh, good, 1);
          CHECK(fresh.metrics().outcome == static_cast<float>(UpdateOutcome::withheld));
          CHECK(same_bits(fresh.params(), broken));
          now.step = 8;
        }
      }
    });
  }
}

TEST_CASE("an update that overflows the second moment alone is broken") {
  // Adam divides by the second moment: the weight would never change again, without any visible
  // error.
  const OptimizerSpec spec = optimizer("Adam", "{}");
  on_backends([&](Backend& backend) {
    for (const std::size_t at : {0U, 36U}) {
      Training training(backend, spec, std::vector<float>(37, 1.0F));
      std::vector<float> grads(37, 0.0F);
      grads[at] = 1e25F;
      StepScalars now;
      now.step = 1;
      StepMetrics metrics;
      metrics.loss_sum = 1;
      training.guarded_step(grads, 1, 0.1, now, metrics);
      CHECK(std::isfinite(training.params()[at]));
      CHECK(training.metrics().outcome == static_cast<float>(UpdateOutcome::broken));
    }
  });
}

TEST_CASE("amsgrad keeps a NaN") {
  const OptimizerSpec spec = optimizer("Adam", R"({"amsgrad": true})");
  on_backends([&](Backend& backend) {
    for (const std::int64_t n : {8, 1}) {  // the vector loop and the scalar one
      for (const bool in_state : {false, true}) {
        Training training(backend, spec, {{0, n, 0}}, std::vector<float>(8, 1.0F),
                          {0, 0, in_state ? kNan : 1.0F});
        training.step(std::vector<float>(8, in_state ? 1.0F : kNan), 2, 0.1);
        CHECK(std::isnan(training.state(2)[0]));
        CHECK(std::isnan(training.params()[0]));
      }
    }
  });
}

TEST_CASE("centered RMSprop survives a gradient that does not vary") {
  // For a constant gradient, the mean of squares minus the squared mean is only rounding error, and
  // negative at some step.
  const OptimizerSpec spec = optimizer("RMSprop", R"({"centered": true, "alpha": 0.5})");
  on_backends([&](Backend& backend) {
    Training training(backend, spec, std::vector<float>(9, 1.0F));
    for (std::int64_t t = 1; t <= 60; ++t) {
      training.step(std::vector<float>(9, 0.3F), t, 1e-9);
      CHECK(std::isfinite(training.params()[0]));
      CHECK(std::isfinite(training.params()[8]));
    }
  });
}

}  // namespace dpt::testing
