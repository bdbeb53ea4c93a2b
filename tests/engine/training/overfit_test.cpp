// Training on the same few batches: their choice, and the report if their loss does not fall.
#include "engine/training/overfit.h"

#include <doctest/doctest.h>

#include <cmath>

#include "engine/job/starting_point.h"
#include "tests/engine/training/run.h"
#include "tests/support/text.h"

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
  const std::vector<std::int64_t> order = epoch_order(whole.data.splits.train.size(), 7, 0, true);
  REQUIRE(job.data.splits.train.size() == 24);
  for (std::size_t i = 0; i < 24; ++i) {
    CHECK(job.data.splits.train.indices[i] == whole.data.splits.train.indices[order[i]]);
  }
  CHECK_FALSE(job.spec.data.shuffle);
  CHECK(whole.data.train_input.crop);
  CHECK_FALSE(job.data.train_input.crop);
  CHECK_FALSE(job.data.train_input.flip);
  for (const std::int64_t step : {0, 2, 500}) CHECK(job.update.schedule(step) == 0.01);
  // The last batch of an epoch is smaller.
  CHECK(overfit_job(whole, 5).data.splits.train.size() == 53);
  CHECK_THROWS_WITH(
      overfit_job(whole, 6),
      "--overfit 6: an epoch has 5 batches (53 samples in batches of 12). Give at most that many");
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
    CHECK(results.back().target == doctest::Approx(0.02 * std::log(4.0)));
    CHECK(results.back().loss <= results.back().target);
    CHECK(results.back().accuracy == 1);
    CHECK(rounds == results.back().steps);
    CHECK(rounds > 10);
  }
  CHECK(results[0].loss == results[1].loss);
  CHECK(results[0].steps == results[1].steps);
}

TEST_CASE("the bound for a learned batch depends on the kind of loss and on its first value") {
  const auto job = [](const std::string& loss, std::int64_t batches) {
    return overfit_job(small_job(small_config(kAdam), {cpus(1), "loss=" + loss}), batches);
  };
  // The first loss is that of the first batch before any update, even if there are several batches.
  CHECK(overfit_on(job("{type: mse}", 3), 3).first_loss ==
        overfit_on(job("{type: mse}", 1), 1).first_loss);
  const auto target = [&](const std::string& loss, double first) {
    const Job made = job(loss, 1);
    return made.model.loss.near_zero ? made.model.loss.near_zero(first) : 0.02 * first;
  };
  CHECK(target("{type: mse}", 3) == doctest::Approx(0.06));
  CHECK(target("{type: cross_entropy}", 100) == doctest::Approx(0.02 * std::log(4.0)));
  CHECK(target("{type: cross_entropy}", 0.1) == doctest::Approx(0.02 * std::log(4.0)));
  const double seventh = std::sqrt(0.02);
  CHECK(target("{type: l1}", 3) == doctest::Approx(3 * seventh));
  CHECK(target("{type: smooth_l1, beta: 0}", 3) == doctest::Approx(3 * seventh));
  // Differences of 0.5 and of 10; the loss changes its form at 1.
  CHECK(target("{type: smooth_l1}", 0.125) == doctest::Approx(0.125 * 0.02));
  CHECK(target("{type: smooth_l1}", 9.5) == doctest::Approx(10 * seventh - 0.5));
  CHECK(target("{type: smooth_l1}", 2.5) == doctest::Approx(0.5 * 9 * 0.02));

  const OverfitResult learned = overfit_on(job("{type: l1}", 1), 1000);
  CHECK(learned.has_fallen());
  CHECK(learned.target == doctest::Approx(learned.first_loss * seventh));
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
