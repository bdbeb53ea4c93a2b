// Training on the same few batches: which they are, and what is said when their loss does not fall.
#include "engine/training/overfit.h"

#include <doctest/doctest.h>

#include "tests/support/text.h"
#include "tests/training/run.h"

using namespace dpt;
using namespace dpt::testing;

namespace {

OverfitResult overfit_on(const Job& job, std::int64_t max_steps, int* rounds = nullptr) {
  return overfit(
      job, fresh_start(job), max_steps, [] { return StopReason::none; },
      [&](const OverfitResult&) {
        if (rounds) ++*rounds;
      });
}

}  // namespace

TEST_CASE("overfitting takes the first batches of the run's first epoch, as evaluation sees them") {
  const Job whole = small_job(small_config(kAdam), {cpus(1)});
  const Job job = overfit_job(whole, 2);
  const std::vector<std::int64_t> order = epoch_order(whole.splits.train.size(), 7, 0, true);
  REQUIRE(job.splits.train.size() == 24);
  for (std::size_t i = 0; i < 24; ++i) {
    CHECK(job.splits.train.indices[i] ==
          whole.splits.train.indices[static_cast<std::size_t>(order[i])]);
  }
  CHECK_FALSE(job.spec.data.shuffle);
  CHECK(whole.train_input.crop);
  CHECK_FALSE(job.train_input.crop);
  CHECK_FALSE(job.train_input.flip);
  for (const std::int64_t step : {0, 2, 500}) CHECK(job.schedule(step) == 0.01);
  // The last batch of an epoch is a smaller one.
  CHECK(overfit_job(whole, 5).splits.train.size() == 53);
  CHECK_THROWS_WITH(
      overfit_job(whole, 6),
      "--overfit 6: an epoch has 5 batches (53 samples in batches of 12). Give at most as many");
}

TEST_CASE("a model that can learn learns a batch by heart, on any number of replicas") {
  std::vector<OverfitResult> results;
  for (const int replicas : {1, 3}) {
    const Job job = overfit_job(
        small_job(small_config(kAdam),
                  {cpus(replicas), "train.shards=4", "train.epochs=1", "loss.label_smoothing=0.2"}),
        1);
    int rounds = 0;
    results.push_back(overfit_on(job, 1000, &rounds));
    CHECK(results.back().has_fallen());
    CHECK(results.back().loss <= 0.02 * results.back().first_loss);
    CHECK(results.back().accuracy == 1);
    CHECK(rounds == results.back().steps);
    CHECK(rounds > 10);
  }
  CHECK(results[0].loss == results[1].loss);
  CHECK(results[0].steps == results[1].steps);
}

TEST_CASE("a batch that is not learned: how the loss went decides the advice") {
  const auto advice = [](const char* optimizer, std::int64_t steps) {
    const Job job = overfit_job(small_job(small_config(optimizer), {cpus(1)}), 1);
    const OverfitResult result = overfit_on(job, steps);
    CHECK(result.steps == steps);
    CHECK_FALSE(result.has_fallen());
    return overfit_advice(job, result);
  };
  check_contains(advice("{type: SGD, lr: 1.0e-9}", 3), "It has hardly changed: the learning rate");
  check_contains(advice("{type: Adam, lr: 10}", 2),
                 "It has grown: try a lower optimizer.lr than 10");
  check_contains(advice(kAdam, 15), "It does fall: more steps");
}
