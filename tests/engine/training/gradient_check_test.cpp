// The limits of checking a gradient by differences. No correct gradient may be reported as wrong.
#include "engine/training/gradient_check.h"

#include <cmath>

#include "tests/engine/training/run.h"

using namespace dpt;
using namespace dpt::testing;

namespace {

constexpr std::size_t kCount = 200;

/// Returns the function that sums term(x[i], i), in float as losses are, and claims slope(x[i], i)
/// as its gradient.
CheckedFunction sum_of(const std::function<double(double, std::size_t)>& term,
                       const std::function<double(double, std::size_t)>& slope) {
  CheckedFunction function;
  for (std::size_t i = 0; i < kCount; ++i) {
    function.at.push_back(static_cast<float>(0.3 * std::sin(static_cast<double>(i) * 1.7)));
    function.gradient.push_back(static_cast<float>(slope(static_cast<double>(function.at[i]), i)));
  }
  function.value = [term](std::int64_t, std::span<const float> values) {
    double sum = 2;
    for (std::size_t i = 0; i < values.size(); ++i) sum += term(static_cast<double>(values[i]), i);
    return static_cast<double>(static_cast<float>(sum));
  };
  return function;
}

CheckedTensor check(const CheckedFunction& function, std::uint64_t seed = 1) {
  return check_gradient(function, 0, static_cast<std::int64_t>(kCount), seed);
}

CheckedFunction smooth() {
  return sum_of(
      [](double x, std::size_t i) { return 0.01 * std::sin(x + static_cast<double>(i)); },
      [](double x, std::size_t i) { return 0.01 * std::cos(x + static_cast<double>(i)); });
}

}  // namespace

TEST_CASE("gradient check: a right gradient agrees, whatever directions are drawn") {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const CheckedTensor checked = check(smooth(), seed);
    CHECK(checked.verdict == GradientVerdict::agrees);
    CHECK(checked.directions >= 3);
    CHECK(checked.worst < 0.05);
  }
}

TEST_CASE("gradient check: a wrong one differs: a factor, a sign, what is missing, another scale") {
  const auto verdict = [](const std::function<float(float, std::size_t)>& change) {
    CheckedFunction function = smooth();
    for (std::size_t i = 0; i < kCount; ++i) {
      function.gradient[i] = change(function.gradient[i], i);
    }
    return check(function).verdict;
  };
  CHECK(verdict([](float g, std::size_t) { return g; }) == GradientVerdict::agrees);
  CHECK(verdict([](float g, std::size_t) { return 1.25F * g; }) == GradientVerdict::differs);
  CHECK(verdict([](float g, std::size_t) { return -g; }) == GradientVerdict::differs);
  CHECK(verdict([](float, std::size_t) { return 0.0F; }) == GradientVerdict::differs);
  CHECK(verdict([](float g, std::size_t i) { return i < kCount / 2 ? 0.0F : g; }) ==
        GradientVerdict::differs);
  CHECK(verdict([](float g, std::size_t i) { return i % 4 == 0 ? 2 * g : g; }) ==
        GradientVerdict::differs);
  CHECK(verdict([](float g, std::size_t) { return g + 0.01F; }) == GradientVerdict::differs);
}

TEST_CASE("gradient check: kinks are not mistakes") {
  // Every other element is at a kink or near one. At a kink, differences cannot show the chosen
  // slope.
  const auto kinked = [](bool at_point) {
    CheckedFunction function = sum_of([](double x, std::size_t) { return 0.01 * std::max(x, 0.0); },
                                      [](double x, std::size_t) { return x > 0 ? 0.01 : 0.0; });
    for (std::size_t i = 0; i < kCount; i += 2) {
      function.at[i] = at_point ? 0.0F : function.at[i] * 1e-3F;
      function.gradient[i] = function.at[i] > 0 ? 0.01F : 0.0F;
    }
    return function;
  };
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    CHECK(check(kinked(true), seed).verdict != GradientVerdict::differs);
    CHECK(check(kinked(false), seed).verdict != GradientVerdict::differs);
  }
}

TEST_CASE("gradient check: no slope and no gradient, and a slope that rounding hides") {
  const auto flat = [](double, std::size_t) { return 0.0; };
  CHECK(check(sum_of(flat, flat)).verdict == GradientVerdict::flat);
  const auto tiny = [](double x, std::size_t) { return 1e-12 * x; };
  CHECK(check(sum_of(tiny, [](double, std::size_t) { return 1e-12; })).verdict ==
        GradientVerdict::flat);
  const auto steep = [](double x, std::size_t) { return 0.1 * x; };
  CHECK(check(sum_of(steep, flat)).verdict == GradientVerdict::differs);
  CHECK(check(sum_of(flat, [](double, std::size_t) { return 0.1; })).verdict ==
        GradientVerdict::differs);
}

TEST_CASE("gradient check: of nets with all kinds of layers, nothing is called wrong") {
  std::string config = small_config(kSgd, 1);
  const std::string flatten = "    - {type: Flatten}\n";
  config.replace(config.find(flatten), 0,
                 R"(    - {type: Conv2d, name: conv3, out_channels: 7, kernel_size: 3, padding: 1}
    - {type: BatchNorm2d, name: bn}
    - {type: ReLU}
    - {type: Conv2d, name: conv4, share_weights: conv3, out_channels: 7, kernel_size: 3, padding: 1}
    - {type: ConvTranspose2d, name: up, out_channels: 4, kernel_size: 2, stride: 2}
    - {type: GroupNorm, name: norm, num_groups: 2}
    - {type: PReLU, name: prelu}
    - {type: Dropout, p: 0.3}
    - {type: MaxPool2d, kernel_size: 2}
)");
  for (const char* loss : {"{type: cross_entropy, label_smoothing: 0.1}",
                           "{type: cross_entropy, class_weights: balanced}", "{type: mse}"}) {
    for (int seed = 1; seed <= 4; ++seed) {
      CAPTURE(loss);
      CAPTURE(seed);
      const Job job =
          small_job(config + "loss: " + loss + "\n", {cpus(1), "seed=" + std::to_string(seed)});
      int agree = 0, asked = 0;
      const std::vector<CheckedTensor> all = check_gradients(
          job, job.placement.devices.front(), 6, [&](const CheckedTensor&) { ++asked; });
      for (const CheckedTensor& checked : all) {
        CAPTURE(checked.parameter);
        CHECK(checked.verdict != GradientVerdict::differs);
        agree += checked.verdict == GradientVerdict::agrees;
      }
      CHECK(asked == static_cast<int>(all.size()));
      CHECK(all.size() == 17);
      // A bias before a batch normalisation has no gradient.
      CHECK(agree >= 14);
    }
  }
}

TEST_CASE("gradient check: weights that start on a kink are moved off it") {
  // The input of the normalisation is zero, so its output is its bias, which starts at zero too.
  std::string config = small_config(kSgd, 1);
  const std::string conv2 = "    - {type: Conv2d, name: conv2";
  config.replace(
      config.find(conv2), 0,
      R"(    - {type: Conv2d, name: dead, out_channels: 5, kernel_size: 1, bias_init: constant, bias_init_value: -100}
    - {type: ReLU}
    - {type: BatchNorm2d, name: bn}
    - {type: ReLU}
)");
  int agree = 0;
  for (int seed = 1; seed <= 4; ++seed) {
    CAPTURE(seed);
    const Job job = small_job(config, {cpus(1), "seed=" + std::to_string(seed)});
    for (const CheckedTensor& checked : check_gradients(job, job.placement.devices.front(), 4)) {
      CAPTURE(checked.parameter);
      CHECK(checked.verdict != GradientVerdict::differs);
      if (checked.parameter == "dead.weight") CHECK(checked.verdict == GradientVerdict::flat);
      if (checked.parameter == "bn.bias") agree += checked.verdict == GradientVerdict::agrees;
    }
  }
  CHECK(agree >= 3);
}
