// train.ema and train.swa: averages of the weights over runs, stops, bad steps and replicas.
#include "engine/optimizers/average.h"

#include <doctest/doctest.h>

#include "engine/collectives/local_group.h"
#include "engine/job/starting_point.h"
#include "engine/layers/param_spec.h"
#include "kernels/devices.h"
#include "tests/engine/training/poisoned.h"

using namespace dpt;
using namespace dpt::testing;

namespace {

const std::vector<float>& average_in(const StartingPoint& point) {
  return point.optimizer.back().second;
}

/// Returns true if two buffers are equal except for the counters, which are not averaged.
bool same_average(const Job& job, std::vector<float> a, const std::vector<float>& b) {
  const auto begin = static_cast<std::ptrdiff_t>(job.model.plan.counters.begin);
  std::copy_n(b.begin() + begin, job.model.plan.counters.size(), a.begin() + begin);
  return a == b;
}

std::string normed(int epochs = 2) {
  std::string config = small_config(kAdam, epochs);
  const std::string after = "name: conv2, out_channels: 7, kernel_size: 3}\n";
  config.insert(config.find(after) + after.size(), "    - {type: BatchNorm2d, name: bn}\n");
  return config;
}

}  // namespace

TEST_CASE("the decay of the average grows with the updates up to train.ema.decay") {
  CHECK(average_decay(0.999, 1) == doctest::Approx(2.0 / 11));
  CHECK(average_decay(0.999, 90) == doctest::Approx(0.91));
  CHECK(average_decay(0.9, 79) == doctest::Approx(80.0 / 89));
  CHECK(average_decay(0.9, 81) == 0.9);
  CHECK(average_decay(0, 5) == 0);
}

TEST_CASE("the average is that of the weights and running statistics after every update") {
  for (const std::string& device : device_kinds()) {
    CAPTURE(device);
    const Job job =
        small_job(normed(), {replicas_on(device, 2), "train.shards=3", "train.ema.decay=0.3"});
    CHECK(job.update.state_names() == std::vector<std::string>{"exp_avg", "exp_avg_sq", "ema"});
    const TempDir folder;
    train_small(job, folder.path(), nullptr, 6);
    std::vector<float> want = fresh_start(job).params;
    for (std::int64_t step = 1; step <= 6; ++step) {
      CAPTURE(step);
      const StartingPoint point = checkpoint_of(job, folder, step);
      const auto part = static_cast<float>(1.0 - average_decay(0.3, step));
      for (const Param& param : job.model.plan.params) {
        CAPTURE(param.name);
        std::int64_t different = 0;
        for (std::int64_t i = param.offset; i < param.offset + param.count; ++i) {
          const auto at = static_cast<std::size_t>(i);
          const bool counts = param.spec.role == ParamRole::counter;
          want[at] = counts ? point.params[at] : want[at] + (point.params[at] - want[at]) * part;
          if (average_in(point)[at] != want[at]) ++different;
        }
        CHECK(different == 0);
      }
    }
  }
}

TEST_CASE("the average has the same bits on any replicas, and over a stop on another number") {
  const auto job = [](int replicas) {
    return small_job(normed(), {cpus(replicas), "train.shards=8", "train.ema.decay=0.99"});
  };
  const TempDir first;
  const FinalState one = train_small(job(1), first.path());
  REQUIRE(one.optimizer.back().first == "ema");
  for (const int replicas : {2, 3, 8}) {
    const TempDir folder;
    CHECK((train_small(job(replicas), folder.path()) == one));
  }
  const TempDir folder;
  train_small(job(2), folder.path(), nullptr, 4);
  const StartingPoint rest = checkpoint_of(job(3), folder, 4);
  CHECK((train_small(job(3), folder.path(), &rest) == one));
}

TEST_CASE("validation and test look at the average, and the log says so") {
  const Job job = small_job(normed(), {cpus(1), "train.ema.decay=0.99"});
  const TempDir folder;
  train_small(job, folder.path());
  const auto evals = events(folder, "eval");
  REQUIRE(evals.size() == 3);
  for (const auto& eval : evals) CHECK(eval["weights"] == "ema");
  // Evaluate the same weights in a job without an average.
  const StartingPoint end = checkpoint_of(job, folder, 10);
  const Job plain = small_job(normed(), {cpus(1)});
  const auto backend =
      make_backend(plain.placement.devices.front(), plain.placement.backend_options);
  LocalGroup group(1);
  const auto communicator = group.join(0, *backend);
  Replica replica(*backend, *communicator, plain);
  const auto loss = [&](const std::vector<float>& params) {
    replica.set_params(params);
    return evaluate_split(replica, plain, plain.data.splits.val, "val").loss;
  };
  CHECK(evals[1]["loss"] == loss(average_in(end)));
  CHECK(evals[1]["loss"] != loss(end.params));
}

TEST_CASE("a step that is skipped leaves the average as it is, and one that is undone goes back") {
  for (const char* policy : {"skip", "rollback"}) {
    CAPTURE(policy);
    const Job job = poisoned_job(
        normed(),
        {cpus(2), "train.ema.decay=0.9", std::string("train.on_divergence.policy=") + policy,
         "train.on_divergence.max_rollbacks=2"},
        20, kNaN);
    const TempDir folder;
    const std::string end = diverged(job, folder);
    if (std::string(policy) == "rollback") {
      // The run reaches the bad sample again, with the same weights, until it gives up.
      CHECK_FALSE(end.empty());
      const auto again = events(folder, "rollback");
      CHECK(again.size() == 2);
      const StartingPoint first = checkpoint_of(job, folder, 1);
      for (const float value : average_in(first)) CHECK(std::isfinite(value));
      continue;
    }
    CHECK(end.empty());
    // The bad sample is in step 2, so step 3 continues with the average of step 1.
    const StartingPoint before = checkpoint_of(job, folder, 1),
                        after = checkpoint_of(job, folder, 2);
    CHECK(after.state.skipped_steps == 1);
    CHECK(before.params == after.params);
    CHECK((average_in(before) == average_in(after)));
    const StartingPoint next = checkpoint_of(job, folder, 3);
    const auto part = static_cast<float>(1.0 - average_decay(0.9, 2));
    const float was = average_in(after)[0];
    CHECK(average_in(next)[0] == was + (next.params[0] - was) * part);
  }
}

TEST_CASE("the epochs that train.swa averages") {
  const auto counts = [](const SwaSpec& swa) {
    std::vector<std::int64_t> all;
    for (std::int64_t epochs = 0; epochs < 8; ++epochs) {
      all.push_back(epochs_to_average(swa, epochs));
    }
    return all;
  };
  CHECK(counts({1, 1}) == std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(counts({3, 1}) == std::vector<std::int64_t>{0, 0, 0, 1, 2, 3, 4, 5});
  CHECK(counts({2, 3}) == std::vector<std::int64_t>{0, 0, 1, 1, 1, 2, 2, 2});
}

TEST_CASE("train.swa: the equal average of the weights and statistics after its epochs") {
  constexpr int kEpochs = 5;
  for (const std::string& device : device_kinds()) {
    CAPTURE(device);
    const Job job = small_job(normed(kEpochs), {replicas_on(device, 2), "train.shards=3",
                                                "train.swa={from_epoch: 2, every: 2}"});
    CHECK(job.update.state_names() == std::vector<std::string>{"exp_avg", "exp_avg_sq", "swa"});
    const TempDir folder;
    train_small(job, folder.path());
    const auto end_of = [&](int epoch) {
      return checkpoint_of(job, folder, std::int64_t{epoch} * kStepsPerEpoch);
    };
    // Before its first epoch the average equals the weights, also in the middle of an epoch.
    for (const std::int64_t step : {3, 5, 9}) {
      const StartingPoint point = checkpoint_of(job, folder, step);
      CHECK(point.state.averaged == 0);
      CHECK((average_in(point) == point.params));
    }
    const StartingPoint second = end_of(2), third = end_of(3), fourth = end_of(4), last = end_of(5);
    CHECK(second.state.averaged == 1);
    CHECK((average_in(second) == second.params));
    CHECK(same_average(job, average_in(third), second.params));
    CHECK(fourth.state.averaged == 2);
    CHECK(same_average(job, average_in(last), average_in(fourth)));
    for (const Param& param : job.model.plan.params) {
      CAPTURE(param.name);
      std::int64_t different = 0;
      for (std::int64_t i = param.offset; i < param.offset + param.count; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const float a = second.params[at], b = fourth.params[at];
        const bool counts = param.spec.role == ParamRole::counter;
        if (average_in(fourth)[at] != (counts ? b : a + (b - a) * 0.5F)) ++different;
      }
      CHECK(different == 0);
    }
    // The log says which weights were evaluated.
    const auto evals = events(folder, "eval");
    REQUIRE(evals.size() == kEpochs + 1);
    CHECK_FALSE(evals[0].contains("weights"));
    for (std::size_t i = 1; i < kEpochs; ++i) CHECK(evals[i]["weights"] == "swa");
    // The test evaluates the best, which may be the first epoch, without an average.
    std::int64_t best_step = 0;
    for (const auto& saved : events(folder, "checkpoint")) {
      if (saved["best"] == true) best_step = saved["step"].get<std::int64_t>();
    }
    CHECK(evals.back().contains("weights") == (best_step > kStepsPerEpoch));
    CHECK(evals[1]["loss"] != evals[0]["loss"]);
    CHECK(evals[2]["loss"] == evals[1]["loss"]);
    CHECK(evals[4]["loss"] == evals[3]["loss"]);
    CHECK(evals[3]["loss"] != evals[2]["loss"]);
  }
}

TEST_CASE("train.swa: the test names the weights of the best, if it is from before the average") {
  for (const int from_epoch : {1, 2}) {
    CAPTURE(from_epoch);
    // The learning rate is too small to change a weight, so the first epoch stays the best.
    const Job job = small_job(small_config("{type: SGD, lr: 1.0e-30}", 3),
                              {cpus(2), fmt::format("train.swa={{from_epoch: {}}}", from_epoch)});
    const TempDir folder;
    train_small(job, folder.path());
    const auto evals = events(folder, "eval");
    REQUIRE(evals.size() == 4);
    CHECK(evals[2]["weights"] == "swa");
    CHECK(evals[3]["split"] == "test");
    CHECK(evals[3].contains("weights") == (from_epoch == 1));
  }
}

TEST_CASE("train.swa: epochs without a new average do not count as a lack of improvement") {
  // Averaged after epochs 1, 4 and 7: the epochs in between repeat the previous value.
  for (const char* monitor : {"val/loss", "val/accuracy"}) {
    CAPTURE(monitor);
    const TempDir folder;
    const Job job = small_job(
        small_config(kSgd, 7),
        {cpus(1), "train.swa={from_epoch: 1, every: 3}", "data.val_split=20",
         fmt::format("train.early_stopping={{monitor: {}, patience: 1}}", monitor),
         fmt::format("lr_schedule={{type: plateau, monitor: {}, patience: 0}}", monitor)});
    const FinalState end = train_small(job, folder.path());
    CHECK(end.step % (3 * job.data.steps_per_epoch) == job.data.steps_per_epoch);
    CHECK(end.step >= 4 * job.data.steps_per_epoch);
    for (const auto& event : events(folder, "lr_reduced")) {
      CHECK(event["epoch"].get<int>() % 3 == 1);
    }
  }
}

TEST_CASE("train.swa: the same bits on any replicas, and over stops, also in an evaluation") {
  const auto job = [](int replicas) {
    return small_job(normed(4), {cpus(replicas), "train.shards=8", "train.swa={from_epoch: 2}"});
  };
  const TempDir first;
  const FinalState one = train_small(job(1), first.path());
  REQUIRE(one.optimizer.back().first == "swa");
  CHECK_FALSE((one.optimizer.back().second == one.params));
  for (const int replicas : {2, 8}) {
    const TempDir folder;
    CHECK((train_small(job(replicas), folder.path()) == one));
  }
  for (const std::int64_t stop : {4, 10, 15, 17}) {
    CAPTURE(stop);
    const TempDir folder;
    train_small(job(2), folder.path(), nullptr, stop);
    const StartingPoint rest = checkpoint_of(job(3), folder, stop);
    CHECK((train_small(job(3), folder.path(), &rest) == one));
  }
  // The state is as if the run had stopped during the evaluation after the third epoch. That epoch
  // is already in the average, but not finished.
  const TempDir folder;
  train_small(job(1), folder.path(), nullptr, 15);
  StartingPoint rest = checkpoint_of(job(1), folder, 15);
  REQUIRE(rest.state.averaged == 2);
  const StartingPoint before = checkpoint_of(job(1), folder, 14);
  RunState state = before.state;
  state.step = rest.state.step;
  state.position = job(1).data.splits.train.size();
  state.averaged = 2;
  rest.state = state;
  CHECK((train_small(job(1), folder.path(), &rest).optimizer.back() == one.optimizer.back()));
}
