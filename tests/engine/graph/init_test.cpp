// Starting values: bounds and moments. A value depends only on seed, name, and index in the file's
// layout.
#include <algorithm>
#include <cmath>

#include "engine/graph/init.h"
#include "engine/graph/layouts.h"
#include "engine/graph/make_plan.h"
#include "engine/graph/plan.h"
#include "kernels/base/philox.h"
#include "tests/support/model.h"

namespace dpt::testing {
namespace {

/// Returns the starting values of one parameter in file layout.
std::vector<float> start_of(const Plan& plan, const std::string& name, std::uint64_t seed = 1) {
  std::vector<float> flat(static_cast<std::size_t>(plan.param_floats), NAN);
  initialise_params(plan, seed, flat.data());
  for (const Param& param : plan.params) {
    if (param.name != name) continue;
    std::vector<float> file(static_cast<std::size_t>(param.count));
    to_file_layout(param, flat.data() + param.offset, file.data());
    return file;
  }
  FAIL("no parameter ", name);
  return {};
}

/// Returns the weights or the bias of a Linear 400 -> 200 with these starting values.
std::vector<float> linear_start(const Options& init, const std::string& which = "fc.weight") {
  Options options = {{"out_features", integer(200)}};
  options.insert(options.end(), init.begin(), init.end());
  return start_of(
      make_plan(ModelSpecBuilder({1, 20, 20}).add("Flatten").add("Linear", options, "fc").spec()),
      which);
}

struct Moments {
  double mean = 0, stddev = 0, low = 0, high = 0, kurtosis = 0;
};

Moments moments_of(const std::vector<float>& values) {
  Moments m;
  const auto n = static_cast<double>(values.size());
  for (const float v : values) m.mean += v / n;
  double fourth = 0;
  for (const float v : values) {
    const double d = v - m.mean;
    m.stddev += d * d / n;
    fourth += d * d * d * d / n;
  }
  m.kurtosis = fourth / (m.stddev * m.stddev);
  m.stddev = std::sqrt(m.stddev);
  m.low = *std::min_element(values.begin(), values.end());
  m.high = *std::max_element(values.begin(), values.end());
  return m;
}

/// Checks 80,000 draws: the mean's standard error is bound / sqrt(3 * 80,000), the extremes come
/// within a thousandth of the bounds, and the kurtosis of a uniform distribution is 1.8.
void check_uniform(const std::vector<float>& values, double bound) {
  const Moments m = moments_of(values);
  CHECK(std::abs(m.mean) < 5 * bound / std::sqrt(3.0 * 80000));
  CHECK(m.stddev == doctest::Approx(bound / std::sqrt(3.0)).epsilon(0.02));
  CHECK(m.low >= -bound);
  CHECK(m.high <= bound);
  CHECK(m.low < -0.999 * bound);
  CHECK(m.high > 0.999 * bound);
  CHECK(m.kurtosis == doctest::Approx(1.8).epsilon(0.03));
}

void check_normal(const std::vector<float>& values, double mean, double stddev) {
  const Moments m = moments_of(values);
  CHECK(std::abs(m.mean - mean) < 5 * stddev / std::sqrt(80000.0));
  CHECK(m.stddev == doctest::Approx(stddev).epsilon(0.02));
  CHECK(m.kurtosis == doctest::Approx(3.0).epsilon(0.05));
  CHECK(m.high > mean + 3.5 * stddev);
}

TEST_CASE("bounds and moments are torch.nn.init's") {
  check_uniform(linear_start({}), 1 / std::sqrt(400.0));
  const auto with = [](const std::string& kind) {
    return linear_start({{"weight_init", word(kind)}});
  };
  check_uniform(with("xavier_uniform"), std::sqrt(6.0 / 600));
  check_uniform(with("kaiming_uniform"), std::sqrt(6.0 / 400));
  check_normal(with("xavier_normal"), 0, std::sqrt(2.0 / 600));
  check_normal(with("kaiming_normal"), 0, std::sqrt(2.0 / 400));
  check_normal(with("normal"), 0, 1);
  check_normal(
      linear_start(
          {{"weight_init", word("normal")}, {"weight_init_value", 3.0}, {"weight_init_std", 0.5}}),
      3, 0.5);
  CHECK(linear_start({{"weight_init", word("constant")}, {"weight_init_value", 0.25}}) ==
        std::vector<float>(80000, 0.25F));
  CHECK(linear_start({{"bias_init", word("constant")}, {"bias_init_value", -1.0}}, "fc.bias") ==
        std::vector<float>(200, -1.0F));
  const Moments bias = moments_of(linear_start({}, "fc.bias"));
  CHECK(bias.high <= 1 / std::sqrt(400.0));  // the weight's fan_in
  CHECK(bias.high > 0.9 / std::sqrt(400.0));
}

TEST_CASE("neighbours, seeds and names are independent of each other") {
  const std::vector<float> a = linear_start({{"weight_init", word("normal")}});
  const auto correlation = [](const std::vector<float>& x, const std::vector<float>& y,
                              std::size_t lag) {
    double sum = 0;
    for (std::size_t i = 0; i + lag < x.size(); ++i) sum += x[i] * y[i + lag];
    return sum / static_cast<double>(x.size());
  };
  for (const std::size_t lag : {1, 2, 3, 4, 400}) {
    CHECK(std::abs(correlation(a, a, lag)) < 5 / std::sqrt(80000.0));
  }
  const Plan plan = make_plan(lenet_spec());
  const std::vector<float> one = start_of(plan, "fc1.weight", 1);
  const std::vector<float> two = start_of(plan, "fc1.weight", 2);
  const std::vector<float> high = start_of(plan, "fc1.weight", (std::uint64_t{1} << 40) + 1);
  CHECK(one != two);
  CHECK(one != high);
  CHECK(start_of(plan, "fc1.weight", 1) == one);
  // All three have the variance 1 / (3 * 800). `scatter` is the standard error of the mean of
  // 102,400 products of two independent values.
  const double scatter = 1 / (3 * 800.0) / std::sqrt(102400.0);
  CHECK(std::abs(correlation(one, two, 0)) < 5 * scatter);
  CHECK(std::abs(correlation(one, high, 0)) < 5 * scatter);
}

TEST_CASE("a parameter's start does not depend on what stands around it") {
  const auto net = [](bool more) {
    ModelSpecBuilder model({1, 9, 9});
    if (more) model.conv("first", 1, 1);
    model.conv("conv", 4, 3);
    if (more) model.add("ReLU").add("MaxPool2d", {{"kernel_size", square(1)}});
    return make_plan(model.add("Flatten").linear("fc", 5).linear("last", 3).spec());
  };
  const Plan small = net(false), large = net(true);
  for (const char* name : {"conv.weight", "conv.bias", "fc.weight", "fc.bias", "last.weight"}) {
    CHECK(start_of(small, name) == start_of(large, name));
  }
  // Another name has other values; the same name has the same values in the file for any layout.
  const auto linear = [](const std::string& name, std::vector<std::int64_t> input) {
    return make_plan(ModelSpecBuilder(std::move(input)).add("Flatten").linear(name, 5).spec());
  };
  CHECK(start_of(linear("a", {6, 1, 1}), "a.weight") !=
        start_of(linear("b", {6, 1, 1}), "b.weight"));
  CHECK(start_of(linear("a", {6, 1, 1}), "a.weight") ==
        start_of(linear("a", {1, 2, 3}), "a.weight"));
  CHECK(start_of(linear("a", {6, 1, 1}), "a.weight") ==
        start_of(linear("a", {2, 3, 1}), "a.weight"));
}

TEST_CASE("the formula is fixed: checkpoints of old seeds can be made again") {
  const Plan plan = make_plan(ModelSpecBuilder({4, 1, 1}).add("Flatten").linear("fc", 2).spec());
  const std::vector<float> values = start_of(plan, "fc.weight", 5);
  // Recomputes the FNV-1a hash of "fc.weight".
  std::uint64_t hash = 14695981039346656037ULL;
  for (const char c : std::string("fc.weight"))
    hash = (hash ^ static_cast<std::uint8_t>(c)) * 1099511628211ULL;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint32_t bits = philox::block(5, philox::Use::init, hash, i / 4).v[i % 4];
    CHECK(values[i] == static_cast<float>((bits >> 8) * 0x1.0p-24 - 0.5));  // bound 1/sqrt(4)
  }
}

TEST_CASE("the formula of normal values is fixed: pairs by Box and Muller") {
  const Plan plan = make_plan(ModelSpecBuilder({3, 1, 1})
                                  .add("Flatten")
                                  .add("Linear",
                                       {{"out_features", integer(3)},
                                        {"weight_init", word("normal")},
                                        {"weight_init_value", 3.0},
                                        {"weight_init_std", 0.5}},
                                       "fc")
                                  .spec());
  std::uint64_t hash = 14695981039346656037ULL;
  for (const char c : std::string("fc.weight"))
    hash = (hash ^ static_cast<std::uint8_t>(c)) * 1099511628211ULL;
  // The second seed draws the rarest value: all used bits of its first word are 0.
  for (const std::uint64_t seed : {5, 2113073}) {
    const std::vector<float> values = start_of(plan, "fc.weight", seed);
    REQUIRE(values.size() == 9);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const philox::Block block = philox::block(seed, philox::Use::init, hash, i / 4);
      const std::size_t first = i % 4 / 2 * 2;
      const double u = ((block.v[first] >> 8) + 1) * 0x1p-24;
      const double angle = 2 * std::acos(-1.0) * ((block.v[first + 1] >> 8) * 0x1p-24);
      const double draw = std::sqrt(-2 * std::log(u)) * (i % 2 ? std::sin(angle) : std::cos(angle));
      CHECK(static_cast<double>(values[i]) == doctest::Approx(3 + 0.5 * draw).epsilon(1e-6));
    }
  }
}

TEST_CASE("padding between parameters is zero") {
  const Plan plan = make_plan(lenet_spec());
  std::vector<float> flat(static_cast<std::size_t>(plan.param_floats), NAN);
  initialise_params(plan, 1, flat.data());
  std::vector<bool> used(flat.size(), false);
  for (const Param& param : plan.params) {
    for (std::int64_t i = 0; i < param.count; ++i) {
      used[param.offset + i] = true;
    }
  }
  for (std::size_t i = 0; i < flat.size(); ++i) {
    CHECK(std::isfinite(flat[i]));
    if (!used[i]) CHECK(flat[i] == 0);
  }
}

}  // namespace
}  // namespace dpt::testing
