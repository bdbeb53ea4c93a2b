// log.noise_scale: the gradient noise scale in the log, compared with the gradients of runs with
// smaller batches.
#include "engine/measurements/noise_scale.h"

#include <doctest/doctest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/replica/measurements.h"
#include "engine/replica/work_partition.h"
#include "tests/engine/training/poisoned.h"

using namespace dpt;
using namespace dpt::testing;

namespace {

/// A learning rate that changes no weight: every step has the gradients of the initial weights.
constexpr const char* kStill = "{type: SGD, lr: 1.0e-30}";
constexpr int kNoiseSteps = 4;  ///< number of full batches in an epoch

std::vector<nlohmann::json> noise_lines(const Job& job, int steps = kNoiseSteps) {
  const TempDir folder;
  train_small(job, folder.path(), nullptr, steps);
  return events(folder.file("metrics.jsonl"), "step");
}

Job still_job(std::vector<std::string> overrides, const std::string& net = {}) {
  std::string config = small_config(kStill, 1);
  if (!net.empty()) {
    const std::string after = "name: conv2, out_channels: 7, kernel_size: 3}\n";
    config.insert(config.find(after) + after.size(), net);
  }
  overrides.push_back("train.freeze=conv1.bias");
  return small_job(config, std::move(overrides));
}

/// Returns the squared norms of the mean gradients of consecutive batches of `batch` samples.
std::vector<double> squares_of(int batch, const std::vector<std::string>& overrides,
                               const std::string& net) {
  std::vector<std::string> all = {cpus(1), "log.every=1",
                                  "data.batch_size=" + std::to_string(batch)};
  all.insert(all.end(), overrides.begin(), overrides.end());
  std::vector<double> values;
  for (const auto& line : noise_lines(still_job(all, net), kNoiseSteps * 12 / batch)) {
    values.push_back(std::pow(line["grad_norm"].get<double>(), 2));
  }
  return values;
}

/// Returns the expected log values after each step, averaged in double. Each part has `size` of the
/// 12 samples, and the first `used` parts of a batch are measured.
std::vector<GradientNoise> expected_noise(int size, int used,
                                          const std::vector<std::string>& overrides,
                                          const std::string& net) {
  const std::vector<double> small = squares_of(size, overrides, net);
  std::vector<std::string> of_big = overrides;
  // With shards, batch norm uses the statistics of each part, as in the smaller batches.
  if (!net.empty()) of_big.push_back("train.shards=" + std::to_string(12 / size));
  const std::vector<double> big = squares_of(12, of_big, net);
  const int parts = 12 / size;
  REQUIRE(small.size() == static_cast<std::size_t>(kNoiseSteps * parts));
  std::vector<GradientNoise> averages;
  double weights = 0, grad_sq = 0, variance = 0;
  for (int step = 0; step < kNoiseSteps; ++step) {
    double mean = 0;
    for (int i = 0; i < used; ++i) mean += small[step * parts + i] / used;
    const double b = size, whole = big[step];
    grad_sq = 0.99 * grad_sq + (12 * whole - b * mean) / (12 - b);
    variance = 0.99 * variance + (mean - whole) / (1 / b - 1.0 / 12);
    weights = 0.99 * weights + 1;
    averages.push_back({grad_sq / weights, variance / weights});
  }
  return averages;
}

void compare_noise(const std::vector<nlohmann::json>& lines,
                   const std::vector<GradientNoise>& want) {
  REQUIRE(lines.size() == want.size());
  for (std::size_t i = 0; i < lines.size(); ++i) {
    CAPTURE(i);
    CAPTURE(lines[i].dump());
    // The squared norms are fp32, and the estimates are small differences of them.
    const double rounding = 1e-5 * (std::abs(want[i].grad_sq) + want[i].variance / 12);
    CHECK(std::abs(lines[i]["grad_sq"].get<double>() - want[i].grad_sq) < rounding);
    CHECK(std::abs(lines[i]["grad_variance"].get<double>() - want[i].variance) < 12 * rounding);
    REQUIRE(lines[i].contains("noise_scale") == (want[i].grad_sq > 0));
    if (want[i].grad_sq > 0) {
      CHECK(lines[i]["noise_scale"].get<double>() ==
            lines[i]["grad_variance"].get<double>() / lines[i]["grad_sq"].get<double>());
    }
  }
}

}  // namespace

TEST_CASE("the two estimates are those of McCandlish et al.") {
  // If |G|^2 is 4 and tr(Sigma) is 30, the expectation is 4 + 30 / 3 = 14 for 3 samples and 4 + 30
  // / 10 = 7 for 10 samples.
  const GradientNoise noise = noise_of(14, 3, 7, 10);
  CHECK(noise.grad_sq == doctest::Approx(4));
  CHECK(noise.variance == doctest::Approx(30));
  CHECK(noise.scale().value() == doctest::Approx(7.5));
  CHECK_FALSE(GradientNoise{0, 30}.scale());
  CHECK_FALSE(GradientNoise{-1, 30}.scale());
  CHECK_FALSE(GradientNoise{4, -1}.scale());
  CHECK(GradientNoise{4, 0}.scale().value() == 0);
}

TEST_CASE("parts of unlike size, and samples that do not count") {
  const Job job = still_job({cpus(3), "log.noise_scale=true"});
  const PartLayout layout(job);
  REQUIRE(layout.norms == 2);  // one before the frozen bias, one after it
  StepResult result;
  result.metrics.count.add_count(12);
  result.metrics.labelled.add_count(10);
  result.metrics.weight = 20;
  result.grad_norm = std::sqrt(7.0);
  std::vector<float> floats;
  const auto parts = [&](const std::vector<float>& given) {
    floats = given;
    floats.resize(static_cast<std::size_t>(layout.floats()));
  };
  // Each part has a weight, the labelled count (in two floats) and two norms of its sums: the
  // squares are |6|^2 + |8|^2 = 100, divided by 4^2, and 9, divided by 1.
  parts({4, 0, 4, 6, 8, 0, 0, 0, 0, 0, 1, 0, 1, 0, 3});
  const GradientNoise weighted = noise_of(result, floats, layout, true).value();
  const GradientNoise want = noise_of((4 * 100.0 / 16 + 1 * 9.0) / 5, 2.5, 7, 10);
  CHECK(weighted.grad_sq == doctest::Approx(want.grad_sq));
  CHECK(weighted.variance == doctest::Approx(want.variance));
  // These sums are already divided by the 12 samples of the batch.
  const GradientNoise plain = noise_of(result, floats, layout, false).value();
  CHECK(plain.variance ==
        doctest::Approx(noise_of(144 * (4 * 100.0 / 16 + 9) / 5, 2.5, 7, 10).variance));
  // There is no estimate if the only part is the whole batch, if there is no part, if a norm is not
  // finite, or if the step has no grad_norm.
  parts({20, 12, 10, 1, 1});
  CHECK_FALSE(noise_of(result, floats, layout, true));
  parts({});
  CHECK_FALSE(noise_of(result, floats, layout, true));
  parts({4, 5, 4, kInfinity, 8});
  CHECK_FALSE(noise_of(result, floats, layout, true));
  parts({4, 5, 4, 6, 8});
  CHECK(noise_of(result, floats, layout, true));
  result.grad_norm.reset();
  CHECK_FALSE(noise_of(result, floats, layout, true));
}

TEST_CASE("log.noise_scale: which micro-batches are a part") {
  // Returns the part_ends() of rank 0.
  const auto ends = [](const DeviceWeights& weights, std::int64_t shards, MicroBatchRule rule,
                       bool together = false, std::int64_t samples = 12) {
    return part_ends(partition_batch(samples, weights, 0, shards, rule), together);
  };
  using Ends = std::vector<std::size_t>;
  CHECK(ends({1, 1}, 0, 2) == Ends{2});
  CHECK(ends({1, 1}, 0, 2, true) == Ends{2});
  // One shard: the first half of 6, 3, 2 and 1 micro-batches.
  CHECK(ends({1}, 0, 2) == Ends{2});
  CHECK(ends({1}, 0, 4) == Ends{1});
  CHECK(ends({1}, 0, 6) == Ends{0});
  CHECK(ends({1}, 0, 12).empty());
  CHECK(ends({1}, 0, 2, true).empty());
  CHECK(ends({1}, 1, 6) == Ends{0});
  // Exact mode: this rank's shards, with an addition after the second.
  CHECK(ends({2, 1}, 3, 2) == Ends{1, 3});
  CHECK(ends({1}, 3, 4) == Ends{0, 1, 3});
  // 3 samples in 4 shards are 3 parts; a single sample is the whole batch, so there is no part.
  CHECK(ends({1}, 4, 12, false, 3).size() == 3);
  CHECK(ends({1}, 4, 12, false, 1).empty());
}

TEST_CASE("log.noise_scale: the estimates are those of the gradients of smaller batches") {
  struct Case {
    std::vector<std::string> overrides;
    int size, used;
    std::vector<std::string> of_all = {};
    std::string net = {};
  };
  const std::string norm = "    - {type: BatchNorm2d, name: bn}\n";
  for (const std::string& device : device_kinds()) {
    const std::vector<Case> cases = {
        {{replicas_on(device, 2)}, 6, 2},
        {{replicas_on(device, 3), "train.accumulate=2"}, 4, 3},
        {{replicas_on(device, 1), "train.accumulate=2"}, 6, 1},
        {{replicas_on(device, 1), "train.accumulate=6"}, 6, 1},
        {{replicas_on(device, 1), "train.shards=4"}, 3, 4},
        {{replicas_on(device, 3), "train.shards=4"}, 3, 4},
        {{replicas_on(device, 2)},
         6,
         2,
         {"loss={type: cross_entropy, class_weights: [1, 2, 3, 4]}"}},
        {{replicas_on(device, 1), "train.shards=2"}, 6, 2, {}, norm},
        {{replicas_on(device, 2), "train.accumulate=2"}, 6, 2, {}, norm},
    };
    for (std::size_t i = 0; i < cases.size(); ++i) {
      // An emulated GPU is slow, so it runs only every other case.
      if (is_emulated(device) && i % 2 == 1) continue;
      const Case& each = cases[i];
      CAPTURE(device);
      CAPTURE(i);
      std::vector<std::string> overrides = each.overrides;
      overrides.insert(overrides.end(), each.of_all.begin(), each.of_all.end());
      overrides.push_back("log={every: 1, noise_scale: true}");
      const Job job = still_job(overrides, each.net);
      CHECK(problem_of_measurements(job) == "");
      compare_noise(noise_lines(job), expected_noise(each.size, each.used, each.of_all, each.net));
    }
  }
}

TEST_CASE("log.noise_scale: buckets that are summed during backward are measured before") {
  if (!have_gpu() || !is_emulated("cuda:0")) return;
  Job job = still_job({"devices=[cuda:0,cuda:0,cuda:1]", "log={every: 1, noise_scale: true}"});
  const auto want = noise_lines(job);
  job.placement.overlap_from_bytes = 0;
  for (const std::int64_t bytes : {std::int64_t{1}, std::int64_t{1000}, std::int64_t{1} << 20}) {
    CAPTURE(bytes);
    job.placement.bucket_bytes = bytes;
    const auto lines = noise_lines(job);
    REQUIRE(lines.size() == want.size());
    for (std::size_t i = 0; i < lines.size(); ++i) {
      for (const char* name : {"grad_sq", "grad_variance"}) {
        CHECK(lines[i][name].get<double>() ==
              doctest::Approx(want[i][name].get<double>()).epsilon(1e-3));
      }
    }
  }
}

TEST_CASE("log.noise_scale changes no bits, and exact mode's numbers depend on no replicas") {
  const auto job = [](const std::string& device, int replicas, const std::string& mode, bool on) {
    return small_job(small_config(kSgd, 1),
                     {replicas_on(device, replicas), mode,
                      std::string("log={every: 1, noise_scale: ") + (on ? "true}" : "false}")});
  };
  for (const std::string& device : device_kinds()) {
    CAPTURE(device);
    std::vector<nlohmann::json> exact;
    for (const int replicas : {1, 3}) {
      for (const std::string mode : {"train.accumulate=2", "train.shards=8"}) {
        CAPTURE(replicas);
        CAPTURE(mode);
        const TempDir with, without;
        CHECK(train_small(job(device, replicas, mode, true), with.path()) ==
              train_small(job(device, replicas, mode, false), without.path()));
        const auto lines = events(with, "step"), plain = events(without, "step");
        REQUIRE(lines.size() == kStepsPerEpoch);
        REQUIRE(plain.size() == lines.size());
        nlohmann::json numbers;
        for (std::size_t i = 0; i < lines.size(); ++i) {
          numbers.push_back({lines[i].at("grad_sq"), lines[i].at("grad_variance")});
          CHECK(lines[i]["loss"] == plain[i]["loss"]);
          CHECK(lines[i]["grad_norm"] == plain[i]["grad_norm"]);
          for (const char* name : {"grad_sq", "grad_variance", "noise_scale"}) {
            CHECK_FALSE(plain[i].contains(name));
          }
        }
        if (mode == "train.shards=8") exact.push_back(numbers);
      }
    }
    REQUIRE(exact.size() == 2);
    CHECK(exact[0] == exact[1]);
  }
}

TEST_CASE("log.noise_scale: a batch without parts is an error that says what to do") {
  const auto problem = [](std::vector<std::string> overrides, const std::string& net = {}) {
    overrides.push_back("log.noise_scale=true");
    return problem_of_measurements(still_job(std::move(overrides), net));
  };
  const auto has = [](const std::string& text, const char* part) {
    CAPTURE(text);
    CHECK(text.find(part) != std::string::npos);
  };
  const std::string norm = "    - {type: BatchNorm2d, name: bn}\n";
  CHECK(problem_of_measurements(still_job({cpus(1)})) == "");
  has(problem({cpus(1)}),
      "there is one replica, which computes all 12 samples of a batch at once. Use two devices, or "
      "train.shards=2 (exact mode), or train.accumulate=2, or log.noise_scale=false");
  has(problem({cpus(1), "train.shards=1"}),
      "there is one shard, which computes all 12 samples of a batch at once. Use train.shards=2, "
      "or train.accumulate=2, or");
  has(problem({cpus(1), "train.accumulate=2"}, norm),
      "there is one replica, and layer 'bn' combines all of its samples. Use two devices, or "
      "train.shards=2 (exact mode), or log.noise_scale=false");
  has(problem({cpus(1), "data.batch_size=1", "train.accumulate=2"}), "data.batch_size 2 or more");
  CHECK(problem({cpus(1), "train.accumulate=2"}) == "");
  CHECK(problem({cpus(1), "train.shards=2"}) == "");
  CHECK(problem({cpus(2)}, norm) == "");
  // More samples than run at once: there are micro-batches without an explicit setting.
  CHECK(problem({cpus(1), "data.size=20000", "data.batch_size=10000"}) == "");
}
