// Uneven device_weights: the partition itself, valid configs, and results that vary no more than
// with the number of replicas. Weights that dpt 0.1 measured are kept.
#include "engine/job/device_weights.h"

#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/checkpoints/checkpoint.h"
#include "engine/job/starting_point.h"
#include "kernels/devices.h"
#include "tests/engine/training/run.h"

using namespace dpt;
using namespace dpt::testing;

namespace {

/// Returns all vectors of `ranks` device_weights from 1 to `most`.
std::vector<DeviceWeights> all_shares(int ranks, std::int64_t most) {
  std::vector<DeviceWeights> all = {{}};
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<DeviceWeights> longer;
    for (const DeviceWeights& device_weights : all) {
      for (std::int64_t next = 1; next <= most; ++next) {
        longer.push_back(device_weights);
        longer.back().push_back(next);
      }
    }
    all = std::move(longer);
  }
  return all;
}

StartingPoint start_at(const Job& job, const TempDir& folder, std::int64_t step) {
  return start_from_checkpoint(job, folder.path() + "/checkpoints/" + checkpoint_name(step));
}

}  // namespace

TEST_CASE(
    "proportional_parts: everything once, in rank order, each part its proportion to less than "
    "one") {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    for (const DeviceWeights& device_weights : all_shares(ranks, 4)) {
      std::int64_t whole = 0;
      for (const std::int64_t share : device_weights) whole += share;
      for (std::int64_t n = 0; n <= 17; ++n) {
        const std::vector<Range> parts = proportional_parts(n, device_weights);
        REQUIRE(parts.size() == device_weights.size());
        std::int64_t next = 0;
        bool close = true;
        for (std::size_t i = 0; i < parts.size(); ++i) {
          close = close && parts[i].begin == next && parts[i].size() >= 0;
          close = close && std::abs(parts[i].size() * whole - n * device_weights[i]) < whole;
          next = parts[i].end;
        }
        CHECK(close);
        CHECK(next == n);
      }
    }
  }
}

TEST_CASE("proportional_parts: equal device weights are the even cut, whatever their size") {
  for (const std::int64_t share : {1, 7, 1 << 20}) {
    for (int ranks = 1; ranks <= 9; ++ranks) {
      for (std::int64_t n = 0; n <= 40; ++n) {
        const auto parts =
            proportional_parts(n, DeviceWeights(static_cast<std::size_t>(ranks), share));
        for (int i = 0; i < ranks; ++i) {
          CHECK(parts[i] == even_part(n, ranks, i));
        }
      }
    }
  }
}

TEST_CASE(
    "proportional_parts: left-overs go to the largest remainder, of equal ones to the lower rank") {
  CHECK(proportional_parts(10, {9, 1}) == std::vector<Range>{{0, 9}, {9, 10}});
  CHECK(proportional_parts(2, {1, 3}) == std::vector<Range>{{0, 1}, {1, 2}});
  CHECK(proportional_parts(5, {1, 2}) == std::vector<Range>{{0, 2}, {2, 5}});
  CHECK(proportional_parts(8, {1, 1000}) == std::vector<Range>{{0, 0}, {0, 8}});
  const std::int64_t huge = std::int64_t{1} << 40;
  CHECK(proportional_parts(huge, {1 << 20, 1 << 20})[1] == Range{huge / 2, huge});
}

TEST_CASE("device_weights from a config: whole numbers stay, others are scaled") {
  CHECK(to_device_weights(std::vector<double>{9, 1}) == DeviceWeights{9, 1});
  CHECK(to_device_weights(std::vector<double>{0.75, 0.25}) == DeviceWeights{1 << 20, 349525});
  CHECK(to_device_weights(std::vector<double>{1e7, 1e4}) == DeviceWeights{1 << 20, 1049});
  CHECK(to_device_weights(std::vector<double>{1, 1e-9}) == DeviceWeights{1 << 20, 1});
}

TEST_CASE("device_weights without numbers: threads among CPUs, equal among unlike kinds") {
  const DeviceName cpu, cpu3{.threads = 3}, cuda{.kind = DeviceName::Kind::cuda};
  CHECK(default_device_weights(std::vector{cpu, cpu}) == DeviceWeights{1, 1});
  CHECK(default_device_weights(std::vector{cpu, cpu3}) == DeviceWeights{1, 3});
  CHECK(default_device_weights(std::vector{cuda, cuda}) == DeviceWeights{1, 1});
  CHECK(default_device_weights(std::vector{cuda, cpu3}) == DeviceWeights{1, 1});
  CHECK_FALSE(has_unlike_kinds(std::vector{cpu, cpu3}));
  CHECK(has_unlike_kinds(std::vector{cuda, cpu3}));
}

TEST_CASE("device_weights from speeds: in proportion, and equal where a rank was not measured") {
  CHECK(device_weights_for_speed(std::vector<double>{1e-6, 3e-6}) == DeviceWeights{7500, 2500});
  CHECK(device_weights_for_speed(std::vector<double>{1e-7, 1e-4, 1e-4}) ==
        DeviceWeights{9980, 10, 10});
  CHECK(device_weights_for_speed(std::vector<double>{1e-9, 1}) == DeviceWeights{10000, 1});
  CHECK(device_weights_for_speed(std::vector<double>{1e-6, 0}) == DeviceWeights{1, 1});
  CHECK(device_weights_for_speed(std::vector<double>{
            1e-6, std::numeric_limits<double>::infinity()}) == DeviceWeights{1, 1});
}

TEST_CASE("a config's device_weights: auto or a positive number per device") {
  const std::string config = small_config(kSgd);
  const auto error = [&](std::vector<std::string> overrides) {
    try {
      small_job(config, std::move(overrides));
    } catch (const Error& e) {
      CHECK(e.kind() == ErrorKind::usage);
      return std::string(e.what());
    }
    return std::string();
  };
  CHECK(small_job(config, {"devices=[cpu,cpu:2]"}).placement.device_weights == DeviceWeights{1, 2});
  CHECK(
      small_job(config, {"devices=[cpu,cpu:2]", "device_weights=auto"}).placement.device_weights ==
      DeviceWeights{1, 2});
  const Job given = small_job(config, {"devices=[cpu,cpu:2]", "device_weights=[5,1]"});
  CHECK(given.placement.device_weights == DeviceWeights{5, 1});
  CHECK(given.resolved_config.find("\ndevice_weights: [5, 1]\n") != std::string::npos);
  CHECK(small_job(config, {}).resolved_config.find("\ndevice_weights: auto\n") !=
        std::string::npos);

  CHECK(error({"devices=[cpu,cpu:2]", "device_weights=[9,1,0.5]"}) ==
        "command line: device_weights has 3 numbers, [9, 1, 0.5], but there are 2 devices, "
        "[cpu, cpu:2]: give one weight per device, or device_weights=auto");
  const std::string expected = "expected auto or a list of at least 1 number, each above 0, found ";
  CHECK(error({"device_weights=equal"}).find(expected) != std::string::npos);
  CHECK(error({"device_weights=9"}).find(expected + "9; write [9]") != std::string::npos);
  CHECK(error({"device_weights=[]"}).find(expected) != std::string::npos);
  CHECK(error({"devices=[cpu,cpu]", "device_weights=[1,0]"}).find("a number above 0, found 0") !=
        std::string::npos);
}

TEST_CASE("exact mode: equal bits for all device weights") {
  const std::string config = small_config(kSgd);
  const auto final_state = [&](int replicas, const std::string& device_weights) {
    const TempDir folder;
    return train_small(
        small_job(config, {cpus(replicas), "train.shards=8", "device_weights=" + device_weights}),
        folder.path());
  };
  const FinalState one = final_state(1, "auto");
  for (const char* device_weights : {"[3,1]", "[1,3]", "[0.3,0.7]", "[1,1000]", "[1000,1]"}) {
    CAPTURE(device_weights);
    CHECK((final_state(2, device_weights) == one));
  }
  for (const char* device_weights : {"[5,2,1]", "[1,1,6]", "[1,1000,1]"}) {
    CAPTURE(device_weights);
    CHECK((final_state(3, device_weights) == one));
  }
}

TEST_CASE("fast mode: uneven device weights against one replica") {
  // The bound is that of four equal replicas against one: see exactness_test.cpp.
  const std::string config = small_config(kSgd);
  const auto final_state = [&](int replicas, const std::string& device_weights) {
    const TempDir folder;
    return train_small(small_job(config, {cpus(replicas), "device_weights=" + device_weights}),
                       folder.path());
  };
  const FinalState one = final_state(1, "auto");
  for (const char* device_weights : {"[9,1]", "[1,1000]", "[1000,1]", "[2,3]"}) {
    CAPTURE(device_weights);
    const FinalState two = final_state(2, device_weights);
    double worst = 0;
    for (std::size_t i = 0; i < one.params.size(); ++i) {
      worst = std::max(worst, std::abs(static_cast<double>(one.params[i]) - two.params[i]));
    }
    CHECK(worst < 1e-5);
    CHECK(std::abs(one.test_loss - two.test_loss) < 1e-5);
  }
}

TEST_CASE("device_weights that an earlier release measured stay those of its devices") {
  const std::string config = small_config(kSgd);
  const TempDir folder;
  const Job job = small_job(config, {cpus(2)});
  const FinalState whole = train_small(job, folder.path());
  StartingPoint start = start_at(job, folder, 12);
  CHECK(start.state.device_weights.empty());
  start.state.device_weights = {9, 1};
  Job resumed = job;
  adopt_device_weights(start.state, resumed);
  // The parts differ, and so does the rounding of the sums. This shows that the weights are used.
  CHECK_FALSE((train_small(resumed, folder.path(), &start) == whole));
  const StartingPoint later = start_at(job, folder, 20);
  CHECK(later.state.device_weights == DeviceWeights{9, 1});

  const auto weights_of = [&](const Job& other) {
    return start_at(other, folder, 20).state.device_weights;
  };
  CHECK(weights_of(small_job(config, {cpus(3)})).empty());
  CHECK(weights_of(small_job(config, {cpus(2), "device_weights=[2,1]"})).empty());
}

TEST_CASE("a GPU and a CPU core together get equal parts") {
  if (!have_gpu()) return;
  const TempDir folder;
  const Job job = small_job(small_config(kSgd), {"devices=[cuda:0,cpu]"});
  CHECK(job.placement.device_weights == DeviceWeights{1, 1});
  train_small(job, folder.path());
  CHECK(start_at(job, folder, 20).state.device_weights.empty());
}
