// log.layers: norms of parameters and gradients in the log, on any device and number of replicas.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/job/starting_point.h"
#include "tests/engine/training/poisoned.h"

using namespace dpt;
using namespace dpt::testing;

namespace {

std::string norms_config(int epochs = 2) {
  std::string config = small_config("{type: SGD, lr: 0.05}", epochs);
  const std::string after = "name: conv2, out_channels: 7, kernel_size: 3}\n";
  config.insert(config.find(after) + after.size(), "    - {type: BatchNorm2d, name: bn}\n");
  return config;
}

std::vector<nlohmann::json> logged_steps(const Job& job, std::int64_t steps = 6) {
  const TempDir folder;
  train_small(job, folder.path(), nullptr, steps);
  return events(folder.file("metrics.jsonl"), "step");
}

double norm(std::span<const float> values) {
  double sum = 0;
  for (const float v : values) sum += static_cast<double>(v) * static_cast<double>(v);
  return std::sqrt(sum);
}

}  // namespace

TEST_CASE("log.layers: each logged step has the norms of what is updated, before the update") {
  for (const std::string& device : device_kinds()) {
    CAPTURE(device);
    // SGD without momentum: the update is the clipped gradient times the learning rate.
    const Job job =
        small_job(norms_config(), {replicas_on(device, 2), "train.shards=3",
                                   "log={every: 2, layers: true}", "train.freeze=conv1.bias"});
    const TempDir folder;
    train_small(job, folder.path(), nullptr, 6);
    const auto lines = events(folder.file("metrics.jsonl"), "step");
    REQUIRE(lines.size() == 4);  // steps 1, 2, 4 and 6
    for (const auto& line : lines) {
      const auto step = line["step"].get<std::int64_t>();
      CAPTURE(step);
      const std::vector<float> before =
          step == 1 ? fresh_start(job).params : checkpoint_of(job, folder, step - 1).params;
      const std::vector<float> after = checkpoint_of(job, folder, step).params;
      double squares = 0;
      std::vector<std::string> names;
      for (const auto& [name, value] : line["grad_norms"].items()) {
        names.push_back(name);
        squares += value.get<double>() * value.get<double>();
      }
      const double whole = line["grad_norm"].get<double>();
      CHECK(std::sqrt(squares) == doctest::Approx(whole).epsilon(1e-6));
      const double clip = std::min(1.0, 1.0 / (whole + 1e-6));  // grad_clip_norm
      std::vector<std::string> want;
      for (const Param& param : job.model.plan.params) {
        if (!param.is_trained() || param.is_frozen) continue;
        CAPTURE(param.name);
        want.push_back(param.name);
        const auto part = [&](const std::vector<float>& flat) {
          return std::span(flat).subspan(static_cast<std::size_t>(param.offset),
                                         static_cast<std::size_t>(param.count));
        };
        CHECK(line["param_norms"][param.name].get<double>() ==
              doctest::Approx(norm(part(before))).epsilon(1e-6));
        std::vector<float> change(part(before).begin(), part(before).end());
        for (std::size_t i = 0; i < change.size(); ++i) change[i] -= part(after)[i];
        CHECK(line["grad_norms"][param.name].get<double>() * clip * line["lr"].get<double>() ==
              doctest::Approx(norm(change)).epsilon(1e-3));
      }
      std::sort(want.begin(), want.end());  // the same order as `names`
      CHECK(names == want);
      CHECK(line["param_norms"].size() == want.size());
    }
  }
}

TEST_CASE(
    "log.layers: the same numbers on any number of replicas in exact mode, and the same run") {
  const auto job = [](int replicas, const std::string& layers) {
    return small_job(norms_config(),
                     {cpus(replicas), "train.shards=8", "log={every: 3, layers: " + layers + "}"});
  };
  const auto numbers = [&](int replicas) {
    std::vector<nlohmann::json> all;
    for (const auto& line : logged_steps(job(replicas, "true"))) {
      all.push_back({line["param_norms"], line["grad_norms"]});
    }
    CHECK(all.size() == 3);
    return all;
  };
  const auto one = numbers(1);
  CHECK(one == numbers(2));
  CHECK(one == numbers(3));
  const TempDir with, without;
  CHECK(train_small(job(2, "true"), with.path(), nullptr, 6) ==
        train_small(job(2, "false"), without.path(), nullptr, 6));
  for (const auto& line : events(without.file("metrics.jsonl"), "step")) {
    CHECK_FALSE(line.contains("param_norms"));
    CHECK_FALSE(line.contains("grad_norms"));
  }
}
