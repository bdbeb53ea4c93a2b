// Parameter groups, frozen parameters and clipped gradients in whole runs, on every device.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "engine/checkpoints/checkpoint.h"
#include "engine/graph/executor.h"
#include "engine/job/starting_point.h"
#include "kernels/devices.h"
#include "tests/engine/training/run.h"
#include "tests/support/close.h"

using namespace dpt;
using namespace dpt::testing;

namespace {

constexpr std::int64_t kSteps = 6;  // past an epoch's end, with its ragged batch

std::string without_clip(const std::string& optimizer, int epochs = 2) {
  std::string config = small_config(optimizer, epochs);
  const std::string clip = ", grad_clip_norm: 1.0";
  return config.erase(config.find(clip), clip.size());
}

struct Trained {
  Job job;
  FinalState state;
  std::vector<nlohmann::json> steps;  ///< step events of the log
  std::vector<float> start;

  std::vector<float> of(const std::string& param, const std::vector<float>& flat) const {
    for (const Param& each : job.model.plan.params) {
      if (each.name != param) continue;
      const auto begin = flat.begin() + each.offset;
      return {begin, begin + each.count};
    }
    throw std::runtime_error("no " + param);
  }
};

Trained run(const std::string& config, std::vector<std::string> overrides,
            std::int64_t steps = kSteps) {
  overrides.push_back("log.every=1");
  const TempDir folder;
  Trained result;
  result.job = small_job(config, std::move(overrides));
  result.start = fresh_start(result.job).params;
  result.state = train_small(result.job, folder.path(), nullptr, steps);
  result.steps = events(folder, "step");
  return result;
}

}  // namespace

TEST_CASE("frozen parameters and their state keep every bit; the others train") {
  for (const std::string& device : device_kinds()) {
    CAPTURE(device);
    // The front of the net, which needs no backward at all, and a layer in the middle.
    const Trained end =
        run(small_config(kSgd, 2), {replicas_on(device, 1), "train.freeze=[conv1.*, fc1.weight]"});
    for (const Param& param : end.job.model.plan.params) {
      CAPTURE(param.name);
      const bool frozen = param.name == "fc1.weight" || param.name.starts_with("conv1.");
      CHECK(param.is_frozen == frozen);
      const std::vector<float> before = end.of(param.name, end.start);
      const std::vector<float> after = end.of(param.name, end.state.params);
      const std::vector<float> momentum = end.of(param.name, end.state.optimizer[0].second);
      CHECK(same_bits(before, after) == frozen);
      CHECK(std::all_of(momentum.begin(), momentum.end(), [](float v) { return v == 0; }) ==
            frozen);
    }
  }
}

TEST_CASE("a frozen batch normalisation keeps its statistics, and uses them") {
  std::string config = small_config(kSgd, 2);
  const auto insert_after = [&](const std::string& line, const std::string& layer) {
    config.insert(config.find('\n', config.find(line)) + 1, "    - " + layer + "\n");
  };
  insert_after("name: conv1", "{type: BatchNorm2d, name: bn1}");
  insert_after("name: conv2", "{type: BatchNorm2d, name: bn2}");
  for (const std::string& device : device_kinds()) {
    CAPTURE(device);
    const Trained all = run(config, {replicas_on(device, 1)});
    const Trained end =
        run(config, {replicas_on(device, 2), "train.freeze=[conv1.*, bn1.*, bn2.weight]"});
    for (const char* name :
         {"weight", "bias", "running_mean", "running_var", "num_batches_tracked"}) {
      CAPTURE(name);
      const std::string first = std::string("bn1.") + name, second = std::string("bn2.") + name;
      CHECK(same_bits(end.of(first, end.start), end.of(first, end.state.params)));
      CHECK_FALSE(same_bits(all.of(first, all.start), all.of(first, all.state.params)));
      // A partly frozen layer normalises like any other.
      const bool stays = std::string(name) == "weight";
      CHECK(same_bits(end.of(second, end.start), end.of(second, end.state.params)) == stays);
    }
    CHECK(end.of("bn2.num_batches_tracked", end.state.params) ==
          std::vector<float>{UpdateCounter::bits(kSteps)});
    for (const Node& node : end.job.model.plan.nodes) {
      CHECK(node.coupling.has_value() == (node.name == "bn2"));
    }
  }
}

TEST_CASE("freezing changes nothing for the other parameters but the gradient's norm") {
  // With a learning rate of 0, weights stay unchanged too.
  const std::string frozen = without_clip("{type: SGD, lr: 0.05, momentum: 0.9}");
  const std::string still = without_clip(
      "{type: SGD, lr: 0.05, momentum: 0.9, groups: [{match: [conv1.*, fc1.*], lr_scale: 0}]}");
  for (const std::string& device : device_kinds()) {
    CAPTURE(device);
    const Trained a = run(frozen, {replicas_on(device, 1), "train.freeze=[conv1.*, fc1.*]"});
    const Trained b = run(still, {replicas_on(device, 1)});
    CHECK(same_bits(a.state.params, b.state.params));
    CHECK_FALSE(same_bits(a.state.params, a.start));
  }
}

TEST_CASE("the gradient's norm is that of the parameters that are trained") {
  const std::string config = without_clip("{type: SGD, lr: 1}");
  for (const std::string& device : device_kinds()) {
    CAPTURE(device);
    const Trained end = run(
        config,
        {replicas_on(device, 1), "train.freeze=[conv1.*, fc1.*]", "lr_schedule={type: constant}"},
        1);
    double squares = 0;
    for (std::size_t i = 0; i < end.start.size(); ++i) {
      const double moved = static_cast<double>(end.state.params[i]) - end.start[i];
      squares += moved * moved;
    }
    REQUIRE(end.steps.size() == 1);
    CHECK(end.steps[0].at("grad_norm").get<double>() ==
          doctest::Approx(std::sqrt(squares)).epsilon(1e-5));
  }
}

TEST_CASE("no backward pass runs where nothing before it is trained") {
  const auto calls_of = [](const char* freeze) {
    const Job job = small_job(small_config(kSgd), {cpus(1), freeze});
    const auto backend = make_backend(parse_device("cpu"));
    Executor executor(*backend, job.model.plan, job.data.train_input, job.model.loss, 4, true);
    std::vector<std::string> names;
    for (const ExecutorCall& call : executor.train_calls({}, {})) {
      if (call.name.ends_with(" backward")) names.push_back(call.name);
    }
    return names;
  };
  const std::vector<std::string> all = calls_of("train.freeze=[]");
  CHECK(std::count(all.begin(), all.end(), "conv1 backward") == 1);
  CHECK(calls_of("train.freeze=[conv1.*, conv2.*]") ==
        std::vector<std::string>{"fc2 backward", "fc1 backward"});
  // A frozen layer in the middle passes its gradient on.
  CHECK(calls_of("train.freeze=[conv2.*, fc1.*]") == all);
}

TEST_CASE("a group of all parameters is as other options of the optimizer") {
  const std::string grouped = small_config(
      "{type: AdamW, lr: 0.01, weight_decay: 0.5, groups: [{match: ['*'], lr_scale: 2, "
      "weight_decay: 0.125}]}",
      2);
  const std::string plain = small_config("{type: AdamW, lr: 0.02, weight_decay: 0.125}", 2);
  for (const std::string& device : device_kinds()) {
    CAPTURE(device);
    CHECK(same_bits(run(grouped, {replicas_on(device, 1)}).state.params,
                    run(plain, {replicas_on(device, 1)}).state.params));
  }
}

TEST_CASE("a group's options are for its parameters only") {
  const char* options = "{type: SGD, lr: 0.05, weight_decay: 0.01";
  for (const std::string& device : device_kinds()) {
    CAPTURE(device);
    const std::string one = replicas_on(device, 1);
    const Trained all = run(without_clip(std::string(options) + "}"), {one}, 1);
    const Trained some = run(
        without_clip(std::string(options) + ", groups: [{match: ['*.bias', conv2.*], lr_scale: 2, "
                                            "weight_decay: 0}]}"),
        {one}, 1);
    for (const Param& param : all.job.model.plan.params) {
      CAPTURE(param.name);
      const bool grouped = param.name.ends_with(".bias") || param.name.starts_with("conv2.");
      CHECK(same_bits(all.of(param.name, all.state.params),
                      some.of(param.name, some.state.params)) == !grouped);
    }
  }
}

TEST_CASE(
    "exact mode: equal bits for 1 and 3 replicas and after a stop, with groups and freezing") {
  for (const std::string& device : device_kinds()) {
    for (const std::string type : {"Yogi", "LAMB"}) {
      CAPTURE(device);
      CAPTURE(type);
      const std::string config = small_config(
          "{type: " + type + ", groups: [{match: ['*.bias'], lr_scale: 2, weight_decay: 0.05}]}",
          2);
      const auto job = [&](int replicas) {
        return small_job(config, {replicas_on(device, replicas), "train.shards=4",
                                  "train.freeze=[conv1.*, fc1.bias]"});
      };
      const TempDir first, second, third;
      const FinalState one = train_small(job(1), first.path());
      train_small(job(3), second.path(), nullptr, 3);
      const StartingPoint rest =
          start_from_checkpoint(job(3), second.path() + "/checkpoints/" + checkpoint_name(3));
      CHECK((train_small(job(3), third.path(), &rest) == one));
    }
  }
}

TEST_CASE("grad_clip_value: no element of the gradient is larger") {
  const std::string config = without_clip("{type: SGD, lr: 1}");
  for (const std::string& device : device_kinds()) {
    CAPTURE(device);
    const std::string one = replicas_on(device, 1), constant = "lr_schedule={type: constant}";
    const Trained plain = run(config, {one, constant}, 1);
    CHECK(same_bits(run(config, {one, constant, "train.grad_clip_value=1e30"}, 1).state.params,
                    plain.state.params));
    const Trained clipped = run(config, {one, constant, "train.grad_clip_value=0.01"}, 1);
    double largest = 0, different = 0;
    for (std::size_t i = 0; i < plain.start.size(); ++i) {
      const double moved = std::abs(static_cast<double>(clipped.state.params[i]) - plain.start[i]);
      largest = std::max(largest, moved);
      different += clipped.state.params[i] != plain.state.params[i] ? 1 : 0;
    }
    CHECK(largest == doctest::Approx(0.01).epsilon(1e-4));
    CHECK(different > 0);
    // The logged norm is the one before clipping.
    CHECK(clipped.steps[0].at("grad_norm") == plain.steps[0].at("grad_norm"));
  }
}
