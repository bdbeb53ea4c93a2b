// Exact mode's promise: the same bits on any number of replicas, and after any stop.
#include <doctest/doctest.h>

#include <cmath>

#include "tests/training/run.h"

using namespace dpt;
using namespace dpt::testing;

namespace {

constexpr const char* kSgd = "{type: SGD, lr: 0.05, momentum: 0.9, weight_decay: 0.001}";
constexpr const char* kAdam = "{type: Adam, lr: 0.01}";

FinalState train_on(const std::string& config, int replicas, const std::string& shards) {
  const TempDir folder;
  return train_small(small_job(config, {cpus(replicas), "train.shards=" + shards}), folder.path());
}

}  // namespace

TEST_CASE("exact mode: equal bits for 1, 2, 3, 4, 5 and 8 replicas") {
  for (const char* optimizer : {kSgd, kAdam}) {
    CAPTURE(optimizer);
    const std::string config = small_config(optimizer);
    const FinalState one = train_on(config, 1, "8");
    CHECK(one.step == 20);
    for (const int replicas : {2, 3, 4, 5, 8}) {
      CAPTURE(replicas);
      CHECK((train_on(config, replicas, "8") == one));
    }
  }
}

TEST_CASE("exact mode: another number of shards is another order of additions") {
  // Guards the test above: were all sums exact by luck, it could not fail.
  const std::string config = small_config(kSgd);
  CHECK_FALSE((train_on(config, 1, "8") == train_on(config, 1, "3")));
}

TEST_CASE("fast mode: four replicas against one") {
  // 20 steps; every step's gradient differs by rounding only (some parts in 2^24 of its largest
  // terms), and the net is small and its rate mild, so differences grow by a small factor a step.
  const std::string config = small_config(kSgd);
  const FinalState one = train_on(config, 1, "auto");
  const FinalState four = train_on(config, 4, "auto");
  double worst = 0;
  for (std::size_t i = 0; i < one.params.size(); ++i) {
    worst = std::max(worst, std::abs(static_cast<double>(one.params[i]) - four.params[i]));
  }
  CHECK(worst < 1e-5);
  CHECK(std::abs(one.test_loss - four.test_loss) < 1e-5);
}

TEST_CASE("stopping after any step and resuming, also on another count, changes no bit") {
  for (const char* optimizer : {kSgd, kAdam}) {
    const std::string config = small_config(optimizer);
    const FinalState whole = train_on(config, 1, "8");
    for (std::int64_t stop = 1; stop < 20; stop += 1) {
      CAPTURE(stop);
      const TempDir folder;
      const int before = static_cast<int>(stop % 3) + 1, after = static_cast<int>(stop % 5) + 1;
      train_small(small_job(config, {cpus(before), "train.shards=8"}), folder.path(), nullptr,
                  stop);
      const Job rest = small_job(config, {cpus(after), "train.shards=8"});
      const StartingPoint start =
          start_from_checkpoint(rest, folder.path() + "/checkpoints/" + checkpoint_name(stop));
      CHECK(start.state.step == stop);
      CHECK((train_small(rest, folder.path(), &start) == whole));
    }
  }
}

TEST_CASE("evaluation gives the same results on any number of devices") {
  const std::string config = small_config(kSgd);
  EvalResult one;
  for (const int replicas : {1, 2, 3, 8}) {
    const Job job = small_job(config, {cpus(replicas)});
    const StartingPoint start = fresh_start(job);
    run_ranks(job.devices, job.backend_options, [&](Backend& backend, Communicator& communicator) {
      Replica replica(backend, communicator, job);
      replica.set_params(start.params);
      const EvalResult result = evaluate_split(replica, job, job.splits.test, "test");
      if (communicator.rank() != 0) return;
      if (replicas == 1) one = result;
      CHECK(result.n == 23);
      CHECK((result.samples.loss == one.samples.loss));
      CHECK((result.samples.prediction == one.samples.prediction));
      CHECK(result.loss == one.loss);
    });
  }
}
